// The grain of the cache and of the linear-attention kernels; modules that may not name each other
// agree on it here.
#pragma once

#include <cstdint>

namespace braid {

// Tokens per cache block, the same in every group: prefix reuse happens at multiples of it. It is
// also the chunk of the linear-attention kernels, so a block boundary is always a state boundary.
inline constexpr int32_t kBlockTokens = 64;

}  // namespace braid
