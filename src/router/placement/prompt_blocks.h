// What is known of a request to place it: hashes of its prompt, block by block, its session and the
// stored response that it names. A block of token ids has the key that it has in an engine's cache,
// so what engines say of their caches is found by it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "cache/prefix_match.h"

namespace braid {

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

// The blocks of a prompt's tokens in a space of prefixes.
void SetTokens(std::span<const TokenId> tokens, const PrefixSpace& space, PromptKeys* keys);

uint64_t HashText(uint64_t seed, std::string_view text);
// The key of a session's name.
uint64_t SessionKey(std::string_view tenant, std::string_view name);

}  // namespace braid
