// Packing of rows into panels, and reading single weights back; the formats themselves are data
// (ops/weight_format.h).
#include "ops/packed.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace braid::ops {
namespace {

constexpr int64_t kLineBytes = 64;

float LoadElement(const std::byte* row, int64_t i, DType dtype) {
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, row + 4 * i, 4);
      return value;
    }
    case DType::kF64: {
      double value;
      std::memcpy(&value, row + 8 * i, 8);
      return static_cast<float>(value);
    }
    default: {
      uint16_t bits;
      std::memcpy(&bits, row + 2 * i, 2);
      return dtype == DType::kF16 ? FloatOfF16(bits) : FloatOfBf16(bits);
    }
  }
}

void LoadRow(const std::byte* row, int64_t count, DType dtype, float* out) {
  if (dtype == DType::kBF16) {
    for (int64_t c = 0; c < count; ++c) {
      uint16_t bits;
      std::memcpy(&bits, row + 2 * c, 2);
      out[c] = FloatOfBf16(bits);
    }
  } else if (dtype == DType::kF32) {
    std::memcpy(out, row, static_cast<size_t>(4 * count));
  } else {
    for (int64_t c = 0; c < count; ++c) out[c] = LoadElement(row, c, dtype);
  }
}

// Where the parts of a format's panels lie.
class PanelLayout {
 public:
  explicit PanelLayout(const PackedMatrix& w)
      : format_(RowOf(w.format)),
        block_(format_.group == 0 ? w.depth() : format_.depth_multiple),
        blocks_(w.depth() / block_) {}

  int64_t columns() const { return block_; }  // of a block
  int64_t blocks() const { return blocks_; }
  int64_t groups() const { return format_.ScalesPerRow(block_); }  // of a block
  int64_t row_bytes() const { return format_.CodeBytes(block_); }  // of a row's codes in a block
  int64_t panel_bytes() const { return blocks_ * block_bytes(); }
  // Offsets into a panel. A block begins with the scales of its groups, 16 each; a scale of a whole
  // row stands behind its codes.
  int64_t CodesAt(int64_t b) const {
    return b * block_bytes() + (format_.group == 0 ? 0 : scale_bytes());
  }
  int64_t ScaleAt(int64_t b, int64_t group, int64_t lane) const {
    return b * block_bytes() + (format_.group == 0 ? code_bytes() : 0) +
           (group * kPanelRows + lane) * format_.scale_bytes();
  }

 private:
  int64_t code_bytes() const { return kPanelRows * row_bytes(); }
  int64_t scale_bytes() const { return kPanelRows * groups() * format_.scale_bytes(); }
  int64_t block_bytes() const { return code_bytes() + scale_bytes(); }

  const WeightFormatRow& format_;
  int64_t block_, blocks_;
};

// The scales of a block: groups [first, first + groups) of every row, past the caches. T has the
// size of a scale.
template <class T>
void PackScales(const WeightFormatRow& format, const CodedPanel& panel, int64_t first,
                int64_t groups, int64_t group_bytes, std::byte* out) {
  constexpr T kNaN = sizeof(T) == 4 ? 0x7fc00000u : 0x7e00u;
  constexpr int64_t kGroupsMax = 16, kPerVector = 16 / sizeof(T);
  CHECK(groups <= kGroupsMax, "{} scales in a block", groups);
  alignas(kLineBytes) T lines[kGroupsMax * kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) {
    const std::byte* scales = panel.scales(r) + first * static_cast<int64_t>(sizeof(T));
    const std::byte* codes = panel.codes(r) + first * group_bytes;
    for (int64_t g = 0; g < groups; ++g, codes += group_bytes) {
      T& scale = lines[g * kPanelRows + r];
      std::memcpy(&scale, scales + g * static_cast<int64_t>(sizeof(T)), sizeof(T));
      if (format.has_nan && format.has_nan(codes, group_bytes)) scale = kNaN;
    }
  }
  auto* to = reinterpret_cast<__m128i*>(out);
  for (int64_t i = 0; i < groups * kPanelRows; i += kPerVector) {
    _mm_stream_si128(to++, _mm_load_si128(reinterpret_cast<const __m128i*>(lines + i)));
  }
}

// A panel from the codes of its rows and, in formats that have scales, from those of `panel`.
void PackBlocks(const PackedMatrix& to, std::byte* base, const std::byte* const rows[kPanelRows],
                const CodedPanel* panel) {
  const WeightFormatRow& format = RowOf(to.format);
  const PanelLayout layout(to);
  const int64_t groups = layout.groups(), row_bytes = layout.row_bytes();
  const std::byte* codes[kPanelRows];
  for (int64_t b = 0; b < layout.blocks(); ++b) {
    if (format.quantised()) {
      const auto pack = format.scale_bytes() == 4 ? PackScales<uint32_t> : PackScales<uint16_t>;
      pack(format, *panel, b * groups, groups, row_bytes / groups, base + layout.ScaleAt(b, 0, 0));
    }
    for (int64_t r = 0; r < kPanelRows; ++r) codes[r] = rows[r] + b * row_bytes;
    format.pack(codes, row_bytes / 4, base + layout.CodesAt(b));
  }
  _mm_sfence();  // of the lines past the caches
}

// Rows whose elements are the format's codes are packed where they are.
void PackPlainRows(const PackedMatrix& to, std::byte* base, const std::byte* const rows[16]) {
  const std::vector<std::byte> zeros(static_cast<size_t>(RowOf(to.format).CodeBytes(to.k)));
  const std::byte* codes[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) codes[r] = rows[r] ? rows[r] : zeros.data();
  PackBlocks(to, base, codes, nullptr);
}

}  // namespace

int64_t PackedMatrix::panel_bytes() const { return PanelLayout(*this).panel_bytes(); }

PackedMatrix::Coded PackedMatrix::CodedAt(int64_t matrix, int64_t row, int64_t col) const {
  const WeightFormatRow& row_format = RowOf(format);
  const PanelLayout layout(*this);
  const std::byte* base = panel(matrix, row / kPanelRows);
  const int64_t lane = row % kPanelRows, b = col / layout.columns(), at = col % layout.columns();
  const float code = row_format.code_at(base + layout.CodesAt(b), lane, at);
  if (!row_format.quantised()) return {code, 1.0f};
  const int64_t group = row_format.group == 0 ? 0 : at / row_format.group;
  return {code, LoadElement(base + layout.ScaleAt(b, group, lane), 0, *row_format.scale)};
}

void PackedMatrix::ReadRow(int64_t matrix, int64_t row, float* out) const {
  const WeightFormatRow& row_format = RowOf(format);
  const PanelLayout layout(*this);
  const std::byte* base = panel(matrix, row / kPanelRows);
  const int64_t lane = row % kPanelRows;
  const int64_t columns = row_format.group == 0 ? layout.columns() : row_format.group;
  for (int64_t begin = 0; begin < k; begin += columns) {
    const int64_t b = begin / layout.columns(), first = begin % layout.columns();
    const std::byte* lines = base + layout.CodesAt(b);
    const float scale = CodedAt(matrix, row, begin).scale;
    for (int64_t c = 0; c < std::min(columns, k - begin); ++c) {
      out[begin + c] = row_format.code_at(lines, lane, first + c) * scale;
    }
  }
}

void PackCodes(const PackedMatrix& to, int64_t matrix, int64_t p, const CodedPanel& panel) {
  const std::byte* rows[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) rows[r] = panel.codes(r);
  PackBlocks(to, const_cast<std::byte*>(to.panel(matrix, p)), rows, &panel);
}

void PackPanel(const PackedMatrix& to, int64_t matrix, int64_t p, const std::byte* const rows[16],
               DType dtype) {
  if (RowOf(to.format).plain == dtype && to.k == to.depth()) {
    return PackPlainRows(to, const_cast<std::byte*>(to.panel(matrix, p)), rows);
  }
  CodedPanel panel(to.format, to.depth());
  std::vector<float> x(static_cast<size_t>(to.k));
  for (int64_t r = 0; r < kPanelRows; ++r) {
    if (!rows[r]) continue;
    LoadRow(rows[r], to.k, dtype, x.data());
    QuantiseRow(to.format, x.data(), to.k, panel.codes(r), panel.scales(r));
  }
  PackCodes(to, matrix, p, panel);
}

}  // namespace braid::ops
