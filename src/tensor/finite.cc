// Eight bytes at a time: every weight is looked at while it loads.
#include "tensor/finite.h"

#include <cstring>

namespace braid {
namespace {

// A number is NaN or infinite where all bits of its exponent are set: the exponent's lowest bit,
// added to it, then carries into the place of the sign. `exponent` and `lowest` hold a word's
// numbers side by side.
bool AllFinite(const std::byte* row, int64_t bytes, uint64_t exponent, uint64_t lowest) {
  uint64_t carried = 0;
  int64_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    uint64_t word;
    std::memcpy(&word, row + at, 8);
    carried |= (word & exponent) + lowest;
  }
  uint64_t word = 0;
  std::memcpy(&word, row + at, static_cast<size_t>(bytes - at));
  carried |= (word & exponent) + lowest;
  return (carried & (exponent + lowest)) == 0;
}

}  // namespace

bool AllFinite(const std::byte* numbers, int64_t count, DType dtype) {
  constexpr uint64_t kTwice = 0x0000000100000001u, kFourTimes = 0x0001000100010001u;
  if (dtype == DType::kF32) {
    return AllFinite(numbers, 4 * count, 0x7f800000u * kTwice, 0x800000u * kTwice);
  }
  if (dtype == DType::kBF16) {
    return AllFinite(numbers, 2 * count, 0x7f80u * kFourTimes, 0x80u * kFourTimes);
  }
  if (dtype == DType::kF16) {
    return AllFinite(numbers, 2 * count, 0x7c00u * kFourTimes, 0x400u * kFourTimes);
  }
  return true;
}

}  // namespace braid
