// Chained as in an engine's prefix cache.
#include "router/placement/prompt_blocks.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "cache/block_keys.h"

namespace braid {

uint64_t HashText(uint64_t seed, std::string_view text) {
  uint64_t hash = MixBits(seed ^ text.size());
  while (!text.empty()) {
    uint64_t word = 0;
    const size_t taken = std::min(text.size(), sizeof(word));
    std::memcpy(&word, text.data(), taken);
    hash = MixBits(hash ^ word) + 1;
    text.remove_prefix(taken);
  }
  return hash;
}

void SetTokens(std::span<const TokenId> tokens, const PrefixSpace& space, PromptKeys* keys) {
  keys->tokens = std::ssize(tokens);
  keys->blocks.clear();
  BlockKey key = RootBlockKey(space);
  for (; tokens.size() >= kBlockTokens; tokens = tokens.subspan(kBlockTokens)) {
    BlockTokens block;
    std::ranges::copy(tokens.first(kBlockTokens), block.begin());
    key = ChildBlockKey(key, block);
    keys->blocks.push_back(key.low);
  }
}

uint64_t SessionKey(std::string_view tenant, std::string_view name) {
  return name.empty() ? 0 : HashText(HashText(1, tenant), name) | 1;
}

}  // namespace braid
