// See the header.
#include "runtime/device/weight_pieces.h"

#include <algorithm>

namespace braid {

std::vector<std::span<const std::byte>> WeightPieces(std::vector<const std::byte*> begins,
                                                     const std::byte* end, int64_t bytes_max) {
  std::ranges::sort(begins);
  const auto repeated = std::ranges::unique(begins);
  begins.erase(repeated.begin(), repeated.end());
  std::vector<std::span<const std::byte>> pieces;
  for (size_t i = 0; i < begins.size();) {
    size_t next = i + 1;
    const auto end_of = [&](size_t j) { return j < begins.size() ? begins[j] : end; };
    while (next < begins.size() && end_of(next + 1) - begins[i] <= bytes_max) ++next;
    pieces.emplace_back(begins[i], end_of(next));
    i = next;
  }
  return pieces;
}

}  // namespace braid
