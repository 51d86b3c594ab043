// Where memory full of weights is cut, because a device bounds single allocations. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace braid {

// Pieces of what lies from the first of `begins`, the addresses of weights in any order, up to
// `end`. Each begins where a weight does and has at least one byte, and at most `bytes_max` unless
// it is one weight. Weights may share an address, as a tied head and the embedding do.
std::vector<std::span<const std::byte>> WeightPieces(std::vector<const std::byte*> begins,
                                                     const std::byte* end, int64_t bytes_max);

}  // namespace braid
