// The formats of weights in memory: one row of a table each, from which packing, reading back,
// flags, reports, benches and tests derive. docs/guides/add_format.md says how to add one.
//
// A row of weights is first coded: a run of codes and, in quantised formats, numbers that columns
// share; a weight is code * scale - base (kernels/weight_format.h). Sixteen coded rows are then
// packed into a panel (ops/packed.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/math.h"
#include "ops/cpu/kernels/weight_format.h"
#include "tensor/dtype.h"

namespace braid::ops {

inline constexpr int64_t kPanelRows = 16;

inline constexpr int64_t kFp8Columns = 128;  // of k, that share a scale
inline constexpr int64_t kInt4Columns = 32;

inline constexpr int64_t kCodesPerWord = 8;         // of four bits
inline constexpr uint32_t kZeroWord = 0x88888888u;  // eight of them

struct WeightFormatRow {
  WeightFormat format;    // the row's own place in the table
  std::string_view name;  // in flags and reports
  // Codes are integers: activations are quantised too (ops/cpu/kernels/gemm.h). The sum of a
  // group's products is exact and is then scaled.
  bool integers = false;
  // Columns of a block of a panel; k is padded to a multiple.
  int64_t depth_multiple = 0;
  int64_t code_bits = 0;   // in a panel
  int64_t coded_bits = 0;  // in a coded row
  // A byte of codes of a coded row that stand for zero.
  std::byte zero = {};
  std::optional<DType> plain;  // codes are elements of this type and weights themselves
  // Else what columns share: two factors of the scale, two of the base.
  std::array<SharedNumber, kNumbers> numbers = {};
  bool divides = false;  // as in GroupedFormat
  int64_t group = 0;     // columns that share all of them; 0: all of a row
  // Codes the `count` numbers of a unit (below) and writes what they share. Where one is not
  // finite, all of the unit read as NaN.
  void (*quantise)(const float* x, int64_t count, std::byte* codes, std::byte* scales) = nullptr;
  // Whether one of `count` codes is not a number. Kernels do not handle such codes, so the group's
  // scale becomes NaN.
  bool (*has_nan)(const std::byte* codes, int64_t count) = nullptr;
  // Packs the codes of 16 rows: `words` 32-bit words of each, a multiple of 4, into lines of 64
  // bytes, past the caches.
  void (*pack)(const std::byte* const codes[kPanelRows], int64_t words, std::byte* lines) = nullptr;
  // The code of column `col` of row `lane` in such lines.
  float (*code_at)(const std::byte* lines, int64_t lane, int64_t col) = nullptr;

  bool quantised() const { return numbers[0].type != NumberType::kNone; }
  bool has_base() const { return numbers[2].type != NumberType::kNone; }
  // The fewest columns that share their numbers with no others; 0: all of a row. A coded row's
  // numbers stand unit by unit, those of a unit in the order of `numbers`.
  int64_t unit() const;
  int64_t UnitBytes() const;  // of the numbers of a unit
  int64_t ScaleBytes(int64_t k) const {
    return unit() == 0 ? UnitBytes() : CeilDiv(k, unit()) * UnitBytes();
  }
  // Of a coded row: whole bytes, or int4's words of eight codes with the first in the lowest bits,
  // the rest of a last word that is not full being zeros.
  int64_t CodeBytes(int64_t k) const {
    return coded_bits < 8 ? 4 * CeilDiv(k * coded_bits, 32) : k * coded_bits / 8;
  }
};

// A number as `columns` share it; 1 where there is none.
float NumberOf(const std::byte* at, NumberType type);
// Whether the numbers of a coded row of k columns are all finite.
bool NumbersAreFinite(WeightFormat format, const std::byte* numbers, int64_t k);
// The scale that two numbers make. A divisor of zero stands behind the last row.
constexpr float ScaleOf(bool divides, float first, float second) {
  if (!divides) return first * second;
  return first == 0.0f ? 0.0f : second / first;
}

// All formats, in the order of the enumeration, which is that of their precision.
std::span<const WeightFormatRow> WeightFormats();
const WeightFormatRow& RowOf(WeightFormat format);
std::optional<WeightFormat> FindWeightFormat(std::string_view name);

inline std::string_view NameOf(WeightFormat format) { return RowOf(format).name; }
inline bool IsQuantised(WeightFormat format) { return RowOf(format).quantised(); }

// The format that keeps every bit of a checkpoint's element type.
WeightFormat FormatFor(DType dtype);

// The low halves of eight bytes as a word.
constexpr uint32_t WordOfHalves(uint64_t bytes) {
  bytes &= 0x0f0f0f0f0f0f0f0fu;
  bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffu;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffu;
  return static_cast<uint32_t>(bytes | bytes >> 16);
}

// Sixteen coded rows of `depth` columns, all zeros at first.
class CodedPanel {
 public:
  CodedPanel(WeightFormat format, int64_t depth)
      : code_bytes_(RowOf(format).CodeBytes(depth)),
        scale_bytes_(RowOf(format).ScaleBytes(depth)),
        codes_(static_cast<size_t>(kPanelRows * code_bytes_), RowOf(format).zero),
        scales_(static_cast<size_t>(kPanelRows * scale_bytes_)) {}

  std::byte* codes(int64_t row) { return codes_.data() + row * code_bytes_; }
  std::byte* scales(int64_t row) { return scales_.data() + row * scale_bytes_; }
  const std::byte* codes(int64_t row) const { return codes_.data() + row * code_bytes_; }
  const std::byte* scales(int64_t row) const { return scales_.data() + row * scale_bytes_; }
  int64_t scale_bytes() const { return scale_bytes_; }  // of a row

 private:
  int64_t code_bytes_, scale_bytes_;
  std::vector<std::byte> codes_, scales_;
};

// Codes a row: each number becomes the nearest code, ties to even. The scale is, of the numbers
// that share it, max |x| / 448 for fp8, max |x| / 127 for int8, and for int4 the x of largest
// magnitude (of two the positive one) over -8, in fp16. For grouped formats see
// ops/grouped/grouped_format.h.
void QuantiseRow(WeightFormat format, const float* x, int64_t k, std::byte* codes,
                 std::byte* scales);

}  // namespace braid::ops
