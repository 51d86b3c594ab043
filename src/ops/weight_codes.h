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

inline constexpr int64_t kCodesPerWord = 8;         // of four bits
inline constexpr uint32_t kZeroWord = 0x88888888u;  // eight of them

// A row's scales: kF8 one per 128 codes, kI8 one, kI4 one per 32.
int64_t ScalesPerRow(WeightFormat format, int64_t k);
// Their element type: fp32, of kI4 fp16.
DType ScaleTypeOf(WeightFormat format);
// Bytes of a row's codes: kF8 e4m3 numbers and kI8 integers, a byte each; kI4 integers from -8 to
// 7, each plus 8, eight to a 32-bit word with the first in its lowest bits. A last word that is not
// full has zeros behind.
int64_t CodeBytes(WeightFormat format, int64_t k);
// The low halves of eight bytes as a word.
constexpr uint32_t WordOfHalves(uint64_t bytes) {
  bytes &= 0x0f0f0f0f0f0f0f0fu;
  bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffu;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffu;
  return static_cast<uint32_t>(bytes | bytes >> 16);
}

// The sixteen rows of a panel, at first of zeros.
class CodedPanel {
 public:
  explicit CodedPanel(const PackedMatrix& matrix)
      : code_bytes_(CodeBytes(matrix.format, matrix.depth())),
        scale_count_(ScalesPerRow(matrix.format, matrix.depth())),
        scale_bytes_(scale_count_ * SizeOf(ScaleTypeOf(matrix.format))),
        codes_(static_cast<size_t>(kPanelRows * code_bytes_),
               static_cast<std::byte>(matrix.format == WeightFormat::kI4 ? kZeroWord & 0xff : 0)),
        scales_(static_cast<size_t>(kPanelRows * scale_bytes_)) {}

  std::byte* codes(int64_t row) { return codes_.data() + row * code_bytes_; }
  std::byte* scales(int64_t row) { return scales_.data() + row * scale_bytes_; }
  const std::byte* codes(int64_t row) const { return codes_.data() + row * code_bytes_; }
  const std::byte* scales(int64_t row) const { return scales_.data() + row * scale_bytes_; }
  int64_t scale_count() const { return scale_count_; }  // of a row

 private:
  int64_t code_bytes_, scale_count_, scale_bytes_;
  std::vector<std::byte> codes_, scales_;
};

// To the nearest code, ties to even. The scale is, of the numbers that share it, max |x| / 448 for
// kF8, max |x| / 127 for kI8, and for kI4 the x of largest magnitude (of two the positive one)
// over -8, in fp16. Where a number is not finite it is NaN.
void QuantiseRow(WeightFormat format, const float* x, int64_t k, std::byte* codes,
                 std::byte* scales);

}  // namespace braid::ops
