// This server wrote the texts of the store, so they parse.
#include "server/dialects/responses_input.h"

#include <fmt/core.h>

#include <set>

#include "base/check.h"
#include "base/text/cut_text.h"
#include "server/api/conversation.h"
#include "server/api/limits.h"
#include "server/api/parsers.h"

namespace braid {
namespace {

InputItem FromStore(const StoredItem& stored) {
  Result<json::value> value = ParseJson(stored.text, "stored item", {});
  CHECK(value && value->is_object(), "a stored item is no JSON object");
  return {.value = std::move(value->get_object()), .stored_id = stored.id};
}

// Counts `bytes` of the store before they are copied and parsed: a small request must not be able
// to reference large items many times, nor many small ones to take memory that nobody counts.
ApiStatus AddBytes(const OwnResponses& own, int64_t bytes, const std::string& path,
                   ApiRequest* request) {
  request->stored_bytes += static_cast<size_t>(bytes);
  if (request->stored_bytes > own.bytes_max) {
    return ApiError{
        400,
        fmt::format("{}: the stored items up to here have {} bytes, at most {} are accepted", path,
                    request->stored_bytes, own.bytes_max),
        path};
  }
  if (own.memory == nullptr) return {};
  if (request->stored_hold == nullptr) {
    request->stored_hold = std::make_unique<MemoryBudget::Hold>(*own.memory, 0);
  }
  if (request->stored_hold->Grow(bytes * limits::kPrepareTimesBody, 0)) return {};
  return ApiError{503, fmt::format("{}: no memory to prepare the stored items; try again", path),
                  path, "overloaded"};
}

std::string Shown(std::string_view id) {
  return json::serialize(json::string(CutText(id, limits::kRequestIdBytesMax)));
}

// {"role": …, "content": "a"} as the API shows it: with a type, and parts instead of a string.
void WriteOut(json::object* item) {
  item->emplace("type", "message");
  if ((*item)["type"] != "message") return;
  json::value& content = (*item)["content"];
  if (!content.is_string()) return;
  json::object part{{"type", "input_text"}, {"text", content}};
  if (StringAt(*item, "role") == "assistant") {
    part["type"] = "output_text";
    part["annotations"] = json::array{};
  }
  content = json::array{std::move(part)};
}

std::string PrefixOf(const json::object& item) {
  const std::string_view type = StringAt(item, "type");
  if (type == "function_call") return "fc";
  if (type == "function_call_output") return "fco";
  return type == "reasoning" ? "rs" : "msg";
}

}  // namespace

ApiStatus AddPrevious(const OwnResponses& own, const std::string& path, ApiRequest* request) {
  const std::string& id = request->previous_response_id;
  std::optional<std::vector<StoredItem>> stored;
  if (own.store != nullptr) {
    if (const auto bytes = own.store->ConversationBytes(own.key, id)) {
      RETURN_IF_ERROR(AddBytes(own, *bytes, path, request));
      stored = own.store->Conversation(own.key, id);
    }
  }
  if (!stored) {
    return ApiError{400,
                    fmt::format("{}: no finished response {} is stored; send the conversation as "
                                "input",
                                path, Shown(id)),
                    path, "previous_response_not_found"};
  }
  request->previous_items.reserve(stored->size());
  for (const StoredItem& item : *stored) request->previous_items.push_back(FromStore(item));
  return {};
}

ApiStatus AddReferenced(const OwnResponses& own, const json::object& reference,
                        const std::string& path, ApiRequest* request) {
  const std::string at = path + ".id";
  const json::value* id = reference.if_contains("id");
  if (id == nullptr || !id->is_string()) {
    return WrongType(at, "the id of a stored item", id == nullptr ? json::value(nullptr) : *id);
  }
  std::optional<StoredItem> stored;
  if (own.store != nullptr) {
    const std::string name(id->get_string());
    if (const auto bytes = own.store->ItemBytes(own.key, name)) {
      RETURN_IF_ERROR(AddBytes(own, *bytes, at, request));
      stored = own.store->Item(own.key, name);
    }
  }
  if (!stored) {
    return ApiError{
        400,
        fmt::format("{}: no item {} is stored; send the item itself", at, Shown(id->get_string())),
        at, "item_not_found"};
  }
  request->input_items.push_back(FromStore(*stored));
  return {};
}

ApiStatus CheckReferences(const ApiRequest& request) {
  std::set<std::string_view> seen;
  for (const InputItem& item : request.previous_items) seen.insert(item.stored_id);
  for (size_t i = 0; i < request.input_items.size(); ++i) {
    const std::string& id = request.input_items[i].stored_id;
    if (id.empty() || seen.insert(id).second) continue;
    const std::string at = fmt::format("input[{}].id", i);
    return ApiError{400, fmt::format("{}: {} is already in the conversation", at, Shown(id)), at};
  }
  return {};
}

std::vector<UnnamedItem> ItemsToStore(const ApiRequest& request) {
  std::vector<UnnamedItem> items;
  for (const auto* list : {&request.previous_items, &request.input_items}) {
    for (const InputItem& item : *list) {
      if (!item.stored_id.empty()) {
        items.push_back({.id = item.stored_id, .prefix = {}, .text = json::serialize(item.value)});
        continue;
      }
      json::object value = item.value;
      value.erase("id");
      WriteOut(&value);
      value.emplace("status", "completed");
      items.push_back({.id = {}, .prefix = PrefixOf(value), .text = json::serialize(value)});
    }
  }
  return items;
}

std::string_view IdSuffix(std::string_view id) { return id.substr(id.find('_') + 1); }

std::vector<StoredItem> NameItems(std::vector<UnnamedItem> items, std::string_view response_id) {
  std::vector<StoredItem> named;
  named.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    UnnamedItem& item = items[i];
    if (item.id.empty()) {
      // Ids of output items have no `i`.
      item.id = fmt::format("{}_{}i{:x}", item.prefix, IdSuffix(response_id), i);
      item.text = fmt::format("{{\"id\":\"{}\",{}", item.id, item.text.substr(1));
    }
    named.push_back({std::move(item.id), std::move(item.text)});
  }
  return named;
}

}  // namespace braid
