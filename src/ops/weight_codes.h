// Rows of quantised weights as codes and scales, before they are packed: what a checkpoint stores,
// or what its numbers are rounded to. A weight is code * scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/packed.h"

namespace braid::ops {

inline constexpr int64_t kFp8Columns = 128;  // of k, that share a scale
inline constexpr int64_t kInt4Columns = 32;

int64_t ScalesPerRow(WeightFormat format, int64_t k);

// The sixteen rows of a panel, at first of zeros. A row has k codes of a byte each: kF8 e4m3
// numbers, kI8 integers, kI4 integers from -8 to 7; and its scales: kF8 one per 128 codes, kI8 one,
// kI4 one per 32, which fp16 holds.
class CodedPanel {
 public:
  explicit CodedPanel(const PackedMatrix& matrix)
      : depth_(matrix.depth()),
        scale_count_(ScalesPerRow(matrix.format, matrix.k)),
        codes_(static_cast<size_t>(kPanelRows * depth_)),
        scales_(static_cast<size_t>(kPanelRows * scale_count_)) {}

  std::byte* codes(int64_t row) { return codes_.data() + row * depth_; }
  float* scales(int64_t row) { return scales_.data() + row * scale_count_; }
  const std::byte* codes(int64_t row) const { return codes_.data() + row * depth_; }
  const float* scales(int64_t row) const { return scales_.data() + row * scale_count_; }
  int64_t scale_count() const { return scale_count_; }  // of a row

 private:
  int64_t depth_, scale_count_;
  std::vector<std::byte> codes_;
  std::vector<float> scales_;
};

// To the nearest code, ties to even. The scale is, of the numbers that share it, max |x| / 448 for
// kF8, max |x| / 127 for kI8, and for kI4 the x of largest magnitude (of two the positive one)
// over -8, in fp16. Where a number is not finite it is NaN.
void QuantiseRow(WeightFormat format, const float* x, int64_t k, std::byte* codes, float* scales);

}  // namespace braid::ops
