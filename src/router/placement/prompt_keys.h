// What the router reads of a request to place it: hashes of its prompt, block by block, its session
// and the stored response that it names. A block of token ids has the key that it has in an
// engine's cache, so what engines say of their caches is found by it. Of texts, without a
// tokenizer, a block is a number of bytes in their order: two prompts that begin with the same
// texts have the same first blocks, however their JSON is written. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "cache/prefix_match.h"
#include "router/placement/prompt_reader.h"
#include "server/api/api_request.h"

namespace braid {

// Bytes of a text's block: about as many as 64 tokens have, and as many as 64 token ids.
inline constexpr size_t kTextBlockBytes = 256;
inline constexpr int64_t kTextBlockTokens = 64;

struct PromptKeys {
  std::vector<uint64_t> blocks;  // of each whole block: a hash of it and all before it
  int64_t tokens = 0;            // of the prompt, estimated
  uint64_t session = 0;          // 0: none
  std::string stored_id = {};    // the stored response that it continues or asks for
  bool names_items = false;      // it names stored items, of unknown responses
  bool generates = false;        // false: it costs the engine nothing to speak of
  bool stream = false;
};

// Who sends it: prompts of different owners share no blocks, as in an engine's prefix cache.
struct PromptOwner {
  std::string_view tenant;
  std::string_view session;  // what the session's header says; empty: nothing
};

// A body that is not JSON has no blocks; an engine will say what is wrong with it. With a reader,
// texts are known by their tokens.
PromptKeys ReadPromptKeys(Endpoint endpoint, std::string_view body, const PromptOwner& owner,
                          const PromptReader* reader = nullptr);

// The blocks of a prompt's tokens in a space of prefixes.
void SetTokens(std::span<const TokenId> tokens, const PrefixSpace& space, PromptKeys* keys);

// The key of a session's name.
uint64_t SessionKey(std::string_view tenant, std::string_view name);

}  // namespace braid
