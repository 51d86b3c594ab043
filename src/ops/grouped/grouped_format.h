// Rows of the table of weight formats for the formats of kGroupedFormats: quantising, packing and
// reading derive from the row there. A coded row has a byte for each code.
#pragma once

#include <optional>
#include <string_view>

#include "ops/weight_format.h"

namespace braid::ops {

// What WeightFormatRow's functions of the same names do.
void QuantiseGrouped(const GroupedFormat& format, const float* x, int64_t count, std::byte* codes,
                     std::byte* scales);
// The same where integers that columns share are at most `most`; 0: what their types hold. Files
// have them in fewer bits.
struct CodedUnit {
  std::byte *codes, *scales;
};
void QuantiseGrouped(const GroupedFormat& format, int most, const float* x, int64_t count,
                     const CodedUnit& out);
void PackGrouped(const GroupedFormat& format, const std::byte* const codes[kPanelRows],
                 int64_t words, std::byte* lines);
float GroupedCodeAt(const GroupedFormat& format, const std::byte* lines, int64_t lane, int64_t col);

// The format that holds coded rows of both as they are, if there is one: the rows of each part of a
// weight may be of another format.
std::optional<WeightFormat> HolderOf(WeightFormat a, WeightFormat b);
// A coded row of k weights in a format that holds it.
struct CodedRowView {
  WeightFormat format;
  std::byte *codes, *scales;
};
void WidenRow(const CodedRowView& from, const CodedRowView& to, int64_t k);

constexpr const GroupedFormat& GroupedFormatOf(WeightFormat format) {
  const GroupedFormat* row = kGroupedFormats;
  while (row->format != format) ++row;
  return *row;
}

template <WeightFormat kFormat>
constexpr WeightFormatRow GroupedRow(std::string_view name) {
  constexpr const GroupedFormat& kRow = GroupedFormatOf(kFormat);
  WeightFormatRow row = {
      .format = kFormat,
      .name = name,
      .integers = true,
      .depth_multiple = kRow.block,
      .code_bits = kRow.bits,
      .coded_bits = 8,
      .zero = static_cast<std::byte>(kRow.Padding()),
      .group = kRow.group,
      .quantise = [](const float* x, int64_t count, std::byte* codes,
                     std::byte* scales) { QuantiseGrouped(kRow, x, count, codes, scales); },
      .pack = [](const std::byte* const codes[kPanelRows], int64_t words,
                 std::byte* lines) { PackGrouped(kRow, codes, words, lines); },
      .code_at = [](const std::byte* lines, int64_t lane,
                    int64_t col) { return GroupedCodeAt(kRow, lines, lane, col); }};
  for (size_t i = 0; i < kNumbers; ++i) row.numbers[i] = kRow.numbers[i];
  row.divides = kRow.divides;
  return row;
}

}  // namespace braid::ops
