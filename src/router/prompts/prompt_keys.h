// What the router reads of a request to place it. Of texts, without a tokenizer, a block is a
// number of bytes in their order: two prompts that begin with the same texts have the same first
// blocks, however their JSON is written. Pure.
#pragma once

#include <string_view>

#include "router/placement/prompt_blocks.h"
#include "router/prompts/prompt_reader.h"
#include "server/api/api_request.h"

namespace braid {

// Bytes of a text's block: about as many as 64 tokens have, and as many as 64 token ids.
inline constexpr size_t kTextBlockBytes = 256;

// Who sends it: prompts of different owners share no blocks, as in an engine's prefix cache.
struct PromptOwner {
  std::string_view tenant;
  std::string_view session;  // what the session's header says; empty: nothing
};

// A body that is not JSON has no blocks; an engine will say what is wrong with it. With a reader,
// texts are known by their tokens.
PromptKeys ReadPromptKeys(Endpoint endpoint, std::string_view body, const PromptOwner& owner,
                          const PromptReader* reader = nullptr);

}  // namespace braid
