// The input items of a Responses request: those in the body, those referenced by id, and those of
// the response that it continues. They become messages for the chat template and items for the
// store. Preparation threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_request.h"
#include "server/serving/response_store.h"

namespace braid {

// Adds what request->previous_response_id read and wrote to the previous items.
ApiStatus AddPrevious(const OwnResponses& own, const std::string& path, ApiRequest* request);

// Adds the item that {"type": "item_reference", "id": …} names to the input.
ApiStatus AddReferenced(const OwnResponses& own, const json::object& reference,
                        const std::string& path, ApiRequest* request);

// An item of the store may stand in a conversation once.
ApiStatus CheckReferences(const ApiRequest& request);

// An item for the store; without an id it gets one when its response has one.
struct UnnamedItem {
  std::string id;      // of an item that was stored before, else empty
  std::string prefix;  // of the id that it is to get: "msg"
  std::string text;    // a JSON object, with the id if there is one
};

// All items that the request reads, in full: messages have a type and a list of parts.
std::vector<UnnamedItem> ItemsToStore(const ApiRequest& request);

// Gives ids that are made of the response's.
std::vector<StoredItem> NameItems(std::vector<UnnamedItem> items, std::string_view response_id);

// The part of an id behind its prefix: "resp_1f" → "1f".
std::string_view IdSuffix(std::string_view id);

}  // namespace braid
