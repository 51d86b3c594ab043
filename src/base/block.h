// The grain of the cache and of the linear-attention kernels, and how many tables of blocks there
// are; modules that may not name each other agree on it here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid {

// Tokens per cache block, the same in every group: prefix reuse happens at multiples of it. It is
// also the chunk of the linear-attention kernels, so a block boundary is always a state boundary.
inline constexpr int32_t kBlockTokens = 64;

// Groups of one cache, each with its own tables: full attention, recurrent state, and those of a
// draft head.
inline constexpr size_t kCacheGroupsMax = 8;

}  // namespace braid
