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
        unit_(format_.unit() == 0 ? w.depth() : format_.unit()),
        block_(format_.quantised() && format_.unit() == 0 ? unit_ : format_.depth_multiple),
        blocks_(w.depth() / block_) {}

  int64_t columns() const { return block_; }  // of a block
  int64_t blocks() const { return blocks_; }
  int64_t units() const { return block_ / unit_; }                 // of a block
  int64_t row_bytes() const { return format_.CodeBytes(block_); }  // of a row's codes in a block
  int64_t panel_bytes() const { return blocks_ * block_bytes(); }
  // Offsets into a panel. A block begins with what its columns share, one kind of number after the
  // other, 16 of each; what a whole row shares stands behind its codes.
  int64_t CodesAt(int64_t b) const { return b * block_bytes() + (behind() ? 0 : number_bytes()); }
  int64_t NumbersAt(int64_t b) const { return b * block_bytes() + (behind() ? code_bytes() : 0); }
  // Of number i of column `col` of a block, from NumbersAt.
  int64_t NumberAt(size_t i, int64_t col, int64_t lane) const {
    i = Stored(i);
    int64_t at = 0;
    for (size_t j = 0; j < i; ++j) at += kPanelRows * Count(j) * format_.numbers[j].bytes();
    const SharedNumber& number = format_.numbers[i];
    return at +
           ((number.columns == 0 ? 0 : col / number.columns) * kPanelRows + lane) * number.bytes();
  }
  size_t Stored(size_t i) const {
    return static_cast<size_t>(StoredNumber(format_.numbers.data(), static_cast<int>(i)));
  }
  int64_t number_bytes() const {
    return format_.quantised() ? RoundUp(NumberAt(kNumbers - 1, block_, 0), kLineBytes) : 0;
  }

 private:
  bool behind() const { return format_.quantised() && format_.unit() == 0; }
  int64_t Count(size_t i) const {  // of a block
    const SharedNumber& number = format_.numbers[i];
    return number.columns == 0 ? 1 : block_ / number.columns;
  }
  int64_t code_bytes() const { return kPanelRows * block_ * format_.code_bits / 8; }
  int64_t block_bytes() const { return code_bytes() + number_bytes(); }

  const WeightFormatRow& format_;
  int64_t unit_, block_, blocks_;
};

// The numbers of a block.
class NumberLines {
 public:
  NumberLines(const WeightFormatRow& format, const PanelLayout& layout)
      : format_(format), layout_(layout) {
    CHECK(layout.number_bytes() <= kBytesMax, "{} bytes of scales", layout.number_bytes());
  }

  // Those of units [first, first + units) of every row, past the caches.
  void Pack(const CodedPanel& panel, int64_t first, std::byte* out) {
    const int64_t unit = format_.unit();
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const std::byte* from = panel.scales(r) + first * format_.UnitBytes();
      for (int64_t u = 0; u < layout_.units(); ++u) {
        for (size_t i = 0; i < kNumbers; ++i) {
          const SharedNumber& number = format_.numbers[i];
          if (number.bytes() == 0) continue;
          const int64_t count = unit == 0 ? 1 : unit / number.columns;
          std::byte* to = lines_ + layout_.NumberAt(i, u * unit, r);
          for (int64_t e = 0; e < count; ++e, from += number.bytes()) {
            Copy(from, number.bytes(), to + e * kPanelRows * number.bytes());
          }
        }
      }
    }
    if (format_.has_nan) MarkNaN(panel, first);
    auto* to = reinterpret_cast<__m128i*>(out);
    for (int64_t at = 0; at < layout_.number_bytes(); at += 16) {
      _mm_stream_si128(to++, _mm_load_si128(reinterpret_cast<const __m128i*>(lines_ + at)));
    }
  }

 private:
  static constexpr int64_t kBytesMax = 2048;

  static void Copy(const std::byte* from, int64_t bytes, std::byte* to) {
    switch (bytes) {
      case 1:
        *to = *from;
        break;
      case 2:
        std::memcpy(to, from, 2);
        break;
      default:
        std::memcpy(to, from, 4);
    }
  }
  // Of formats with one fp32 scale.
  void MarkNaN(const CodedPanel& panel, int64_t first) {
    const float nan = NAN;
    const int64_t unit = format_.unit(), bytes = format_.CodeBytes(unit);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      for (int64_t u = 0; u < layout_.units(); ++u) {
        if (!format_.has_nan(panel.codes(r) + (first + u) * bytes, bytes)) continue;
        std::memcpy(lines_ + layout_.NumberAt(0, u * unit, r), &nan, sizeof nan);
      }
    }
  }

  const WeightFormatRow& format_;
  const PanelLayout& layout_;
  alignas(kLineBytes) std::byte lines_[kBytesMax] = {};
};

// A panel from the codes of its rows and, in formats that have scales, from those of `panel`.
void PackBlocks(const PackedMatrix& to, std::byte* base, const std::byte* const rows[kPanelRows],
                const CodedPanel* panel) {
  const WeightFormatRow& format = RowOf(to.format);
  const PanelLayout layout(to);
  NumberLines numbers(format, layout);
  const int64_t row_bytes = layout.row_bytes();
  const std::byte* codes[kPanelRows];
  for (int64_t b = 0; b < layout.blocks(); ++b) {
    if (format.quantised()) numbers.Pack(*panel, b * layout.units(), base + layout.NumbersAt(b));
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
  if (!row_format.quantised()) return {code, 1.0f, 0.0f};
  float values[kNumbers];
  for (size_t i = 0; i < kNumbers; ++i) {
    values[i] = NumberOf(base + layout.NumbersAt(b) + layout.NumberAt(i, at, lane),
                         row_format.numbers[layout.Stored(i)].type);
  }
  return {code, ScaleOf(row_format.divides, values[0], values[1]),
          row_format.has_base() ? values[2] * values[3] : 0.0f};
}

float PackedMatrix::At(int64_t matrix, int64_t row, int64_t input) const {
  const uint16_t* inputs = order(matrix);
  const int64_t col = inputs ? std::find(inputs, inputs + k, input) - inputs : input;
  return CodedAt(matrix, row, col).value();
}

void PackedMatrix::ReadRow(int64_t matrix, int64_t row, float* out) const {
  const WeightFormatRow& row_format = RowOf(format);
  const PanelLayout layout(*this);
  const std::byte* base = panel(matrix, row / kPanelRows);
  const int64_t lane = row % kPanelRows;
  const int64_t columns = row_format.group == 0 ? layout.columns() : row_format.group;
  const uint16_t* inputs = order(matrix);
  for (int64_t begin = 0; begin < k; begin += columns) {
    const int64_t b = begin / layout.columns(), first = begin % layout.columns();
    const std::byte* lines = base + layout.CodesAt(b);
    Coded coded = CodedAt(matrix, row, begin);
    for (int64_t c = 0; c < std::min(columns, k - begin); ++c) {
      coded.code = row_format.code_at(lines, lane, first + c);
      out[inputs ? inputs[begin + c] : begin + c] = coded.value();
    }
  }
}

void PackedMatrix::ReadCodes(int64_t matrix, int64_t row, float* out) const {
  const WeightFormatRow& row_format = RowOf(format);
  const PanelLayout layout(*this);
  const std::byte* base = panel(matrix, row / kPanelRows);
  const int64_t lane = row % kPanelRows, columns = layout.columns();
  for (int64_t begin = 0; begin < k; begin += columns) {
    const std::byte* lines = base + layout.CodesAt(begin / columns);
    for (int64_t c = 0; c < std::min(columns, k - begin); ++c) {
      out[begin + c] = row_format.code_at(lines, lane, c);
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
