// What a request is looked up by, and what was found: the tokens of a sequence in two pieces, the
// space they live in, and how far stored blocks reach and why no farther. Plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/block.h"
#include "base/ids.h"

namespace braid {

using PrefixNodeId = StrongId<struct PrefixNodeTag>;
using BlockTokens = std::array<TokenId, kBlockTokens>;

// Of a stored part. Requests draw epochs in the order in which they are admitted.
struct PartEpochs {
  int64_t order = 0;  // eviction takes the lowest first
  int64_t used = 0;   // of the last request that wanted it; >= order
};

// Prefixes of different spaces never meet.
struct PrefixSpace {
  std::string_view tenant;
  std::string_view salt;  // parts a tenant's prefixes further
  int32_t dp_rank = 0;
};

// A sequence's tokens: the prompt and what came out after it.
struct TokenPieces {
  std::span<const TokenId> prompt, output;

  int32_t size() const { return static_cast<int32_t>(prompt.size() + output.size()); }
  // Tokens [64 * index, 64 * index + 64); all of them must be there.
  void Copy(int32_t index, BlockTokens& out) const {
    const size_t begin = static_cast<size_t>(index) * kBlockTokens;
    const size_t first =
        begin < prompt.size() ? std::min<size_t>(prompt.size() - begin, kBlockTokens) : 0;
    std::copy_n(prompt.begin() + static_cast<ptrdiff_t>(first == 0 ? 0 : begin), first,
                out.begin());
    if (first == kBlockTokens) return;
    const size_t skip = begin + first - prompt.size();
    std::copy_n(output.begin() + static_cast<ptrdiff_t>(skip), kBlockTokens - first,
                out.begin() + static_cast<ptrdiff_t>(first));
  }
};

// Why no more of a sequence was reused.
enum class ReuseStop : uint8_t {
  kOff,         // the prefix cache is off, or this request must not use it
  kComplete,    // all but the last tokens, of which one at least is computed again
  kNeverSeen,   // nothing stored goes on with these tokens in this space
  kEvicted,     // something did, and was evicted
  kNoSnapshot,  // keys and values go on, and no state was stored where they end
};
inline constexpr size_t kReuseStops = 5;
const char* NameOf(ReuseStop stop);

struct PrefixMatch {
  int32_t tokens = 0;  // a multiple of kBlockTokens: everything before it can be reused
  int32_t known = 0;   // >= tokens: keys and values reach so far
  // >= tokens: everything before it can be in place once what the arena lacks has come from a tier:
  // keys and values from min(known, stored) on, and the state at `stored`.
  int32_t stored = 0;
  ReuseStop stop = ReuseStop::kOff;
  int64_t evicted_epoch = 0;        // if kEvicted: when what is missing was used last
  std::vector<PrefixNodeId> nodes;  // known / kBlockTokens of them, from the first block on
};

}  // namespace braid
