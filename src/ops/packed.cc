// Packing of checkpoint rows into panels, and quantisation on the way; runs once per weight at
// load, so its loops are written for the compiler to vectorise.
#include "ops/packed.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "ops/weight_codes.h"

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

// Where the integers of 64 of k begin, and the scales.
int64_t Int4Line(int64_t col) { return col / 64 * 9 * kLineBytes + kLineBytes; }
int64_t Int8Scales(const PackedMatrix& w) { return w.depth() * kPanelRows; }
int64_t Int4Scale(int64_t row, int64_t group) {
  return group / 2 * 9 * kLineBytes + (group % 2 * kPanelRows + row % kPanelRows) * 2;
}

// Four elements of four rows; lines are kPanelRows apart.
inline void Transpose4(const std::byte* const* rows, int64_t c, float* to) {
  __m128 a = _mm_loadu_ps(reinterpret_cast<const float*>(rows[0] + 4 * c));
  __m128 b = _mm_loadu_ps(reinterpret_cast<const float*>(rows[1] + 4 * c));
  __m128 d = _mm_loadu_ps(reinterpret_cast<const float*>(rows[2] + 4 * c));
  __m128 e = _mm_loadu_ps(reinterpret_cast<const float*>(rows[3] + 4 * c));
  _MM_TRANSPOSE4_PS(a, b, d, e);
  _mm_store_ps(to, a);
  _mm_store_ps(to + kPanelRows, b);
  _mm_store_ps(to + 2 * kPanelRows, d);
  _mm_store_ps(to + 3 * kPanelRows, e);
}

struct AsItIs {
  static __m128 Of(__m128 line) { return line; }
};

// Words of eight halves of a byte: the first four become the low halves of four bytes, the others
// the high ones.
struct InHalves {
  static __m128 Of(__m128 line) {
    const __m128i words = _mm_castps_si128(line);
    const __m128i low = Spread(_mm_and_si128(words, _mm_set1_epi32(0xffff)));
    const __m128i high = Spread(_mm_srli_epi32(words, 16));
    return _mm_castsi128_ps(_mm_or_si128(low, _mm_slli_epi32(high, 4)));
  }
  // Four halves in each lower half of a word, to a byte each.
  static __m128i Spread(__m128i x) {
    x = _mm_and_si128(_mm_or_si128(x, _mm_slli_epi32(x, 8)), _mm_set1_epi32(0x00ff00ff));
    return _mm_and_si128(_mm_or_si128(x, _mm_slli_epi32(x, 4)), _mm_set1_epi32(0x0f0f0f0f));
  }
};

// 16 rows of 4-byte elements become lines: out[c * 16 + r] = rows[r][c], every four of a line by
// `Finish`; count is a multiple of 4. Rows are often a power of two apart, where a cache has room
// for few of them: four rows at a time, a whole line of each. The lines go past the caches: nobody
// reads them soon.
template <class Finish>
void TransposeBlocks(const std::byte* const rows[16], int64_t count, std::byte* out) {
  constexpr int64_t kMost = 16;
  float* to = reinterpret_cast<float*>(out);
  alignas(64) float block[kMost * kPanelRows];
  for (int64_t c = 0; c < count;) {
    const int64_t step = std::min(kMost, count - c);
    for (int64_t r = 0; r < kPanelRows; r += 4) {
      for (int64_t i = 0; i < step; i += 4) {
        Transpose4(rows + r, c + i, block + i * kPanelRows + r);
      }
    }
    for (int64_t i = 0; i < step * kPanelRows; i += 4) {
      _mm_stream_ps(to + c * kPanelRows + i, Finish::Of(_mm_load_ps(block + i)));
    }
    c += step;
  }
}

// The same of any number of lines, as they are.
void Transpose(const std::byte* const rows[16], int64_t count, std::byte* out) {
  int64_t c = count / 4 * 4;
  TransposeBlocks<AsItIs>(rows, c, out);
  for (; c < count; ++c) {
    for (int64_t r = 0; r < kPanelRows; ++r) {
      std::memcpy(out + 4 * (c * kPanelRows + r), rows[r] + 4 * c, 4);
    }
  }
}

void PackF32(const PackedMatrix& to, std::byte* base, const std::byte* const rows[16],
             DType dtype) {
  std::vector<float> wide(static_cast<size_t>(kPanelRows * to.depth()));
  const std::byte* pointers[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) {
    float* row = wide.data() + r * to.depth();
    if (rows[r]) LoadRow(rows[r], to.k, dtype, row);
    pointers[r] = reinterpret_cast<const std::byte*>(row);
  }
  Transpose(pointers, to.depth(), base);
}

void PackBf16(const PackedMatrix& to, std::byte* base, const std::byte* const rows[16],
              DType dtype) {
  const std::vector<std::byte> zeros(static_cast<size_t>(to.depth() * 2));
  const bool round = dtype != DType::kBF16;
  std::vector<uint16_t> rounded(round ? static_cast<size_t>(kPanelRows * to.k) : 0);
  std::vector<float> x(round ? static_cast<size_t>(to.k) : 0);
  const std::byte* pairs[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) {
    pairs[r] = rows[r] ? rows[r] : zeros.data();
    if (!rows[r] || !round) continue;
    LoadRow(rows[r], to.k, dtype, x.data());
    uint16_t* row = rounded.data() + r * to.k;
    for (int64_t c = 0; c < to.k; ++c) row[c] = Bf16OfFloat(x[static_cast<size_t>(c)]);
    pairs[r] = reinterpret_cast<const std::byte*>(row);
  }
  const int64_t whole = to.k / 2;
  Transpose(pairs, whole, base);
  for (int64_t c = whole; c < to.depth() / 2; ++c) {
    for (int64_t r = 0; r < kPanelRows; ++r) {
      uint32_t pair = 0;
      if (2 * c < to.k) std::memcpy(&pair, pairs[r] + 4 * c, 2);
      std::memcpy(base + 4 * (c * kPanelRows + r), &pair, 4);
    }
  }
}

// Scales, then codes.
constexpr int64_t Fp8BlockBytes() { return kLineBytes + kFp8Columns * kPanelRows; }

// Where the code of column c of a block is.
constexpr int64_t Fp8Code(int64_t row, int64_t c) {
  const int64_t at = row * 2 + c % 2;  // of the pair's 32
  return kLineBytes + c / 4 * kLineBytes + at / 8 * 16 + c / 2 % 2 * 8 + at % 8;
}

// A line of codes [16][4] becomes two pairs [16][2] in turns of 8 bytes.
struct PairsInTurns {
  static __m128 Of(__m128 line) {
    const __m128i halves =
        _mm_shufflehi_epi16(_mm_shufflelo_epi16(_mm_castps_si128(line), 0xd8), 0xd8);
    return _mm_castsi128_ps(_mm_shuffle_epi32(halves, 0xd8));
  }
};

bool HasNaN(const std::byte* codes, int64_t count) {
  uint8_t most = 0;
  for (int64_t c = 0; c < count; ++c) {
    most = std::max(most, static_cast<uint8_t>(codes[c] & std::byte{0x7f}));
  }
  return most == 0x7f;
}

void PackFp8(std::byte* base, const CodedPanel& panel) {
  const std::byte* rows[kPanelRows];
  for (int64_t i = 0; i < panel.scale_count(); ++i, base += Fp8BlockBytes()) {
    auto* scales = reinterpret_cast<float*>(base);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      rows[r] = panel.codes(r) + i * kFp8Columns;
      // Kernels know no code that is not a number; the scale says it.
      scales[r] = HasNaN(rows[r], kFp8Columns) ? NAN : LoadElement(panel.scales(r), i, DType::kF32);
    }
    TransposeBlocks<PairsInTurns>(rows, kFp8Columns / 4, base + kLineBytes);
  }
}

void PackInt8(const PackedMatrix& to, std::byte* base, const CodedPanel& panel) {
  const std::byte* rows[kPanelRows];
  auto* scales = reinterpret_cast<float*>(base + Int8Scales(to));
  for (int64_t r = 0; r < kPanelRows; ++r) {
    rows[r] = panel.codes(r);
    scales[r] = LoadElement(panel.scales(r), 0, DType::kF32);
  }
  TransposeBlocks<AsItIs>(rows, to.depth() / 4, base);
}

void PackInt4(const PackedMatrix& to, std::byte* base, const CodedPanel& panel) {
  const std::byte* rows[kPanelRows];
  for (int64_t col = 0; col < to.depth(); col += 64) {
    alignas(kLineBytes) uint16_t scales[2 * kPanelRows];
    for (int64_t r = 0; r < kPanelRows; ++r) {
      rows[r] = panel.codes(r) + col / 2;
      uint32_t two;
      std::memcpy(&two, panel.scales(r) + col / kInt4Columns * 2, sizeof two);
      scales[r] = static_cast<uint16_t>(two);
      scales[kPanelRows + r] = static_cast<uint16_t>(two >> 16);
    }
    auto* line = reinterpret_cast<__m128i*>(base + Int4Line(col) - kLineBytes);
    for (int i = 0; i < 4; ++i) {
      _mm_stream_si128(line + i, _mm_load_si128(reinterpret_cast<const __m128i*>(scales) + i));
    }
    TransposeBlocks<InHalves>(rows, 8, base + Int4Line(col));
  }
}

void QuantisePanel(const PackedMatrix& to, int64_t matrix, int64_t p,
                   const std::byte* const rows[16], DType dtype) {
  CodedPanel panel(to);
  std::vector<float> x(static_cast<size_t>(to.k));
  for (int64_t r = 0; r < kPanelRows; ++r) {
    if (!rows[r]) continue;
    LoadRow(rows[r], to.k, dtype, x.data());
    QuantiseRow(to.format, x.data(), to.k, panel.codes(r), panel.scales(r));
  }
  PackCodes(to, matrix, p, panel);
}

}  // namespace

void PackCodes(const PackedMatrix& to, int64_t matrix, int64_t p, const CodedPanel& panel) {
  CHECK(IsQuantised(to.format));
  std::byte* base = const_cast<std::byte*>(to.panel(matrix, p));
  if (to.format == WeightFormat::kF8) PackFp8(base, panel);
  if (to.format == WeightFormat::kI8) PackInt8(to, base, panel);
  if (to.format == WeightFormat::kI4) PackInt4(to, base, panel);
  _mm_sfence();  // of the lines past the caches
}

std::string_view NameOf(WeightFormat format) {
  constexpr std::string_view kNames[] = {"bf16", "fp32", "fp8", "int8", "int4"};
  return kNames[static_cast<int>(format)];
}

WeightFormat FormatFor(DType dtype) {
  return dtype == DType::kBF16 ? WeightFormat::kBF16 : WeightFormat::kF32;
}

int64_t PackedMatrix::panel_bytes() const {
  switch (format) {
    case WeightFormat::kBF16:
      return kPanelRows * depth() * 2;
    case WeightFormat::kF32:
      return kPanelRows * depth() * 4;
    case WeightFormat::kF8:
      return depth() / kFp8Columns * Fp8BlockBytes();
    case WeightFormat::kI8:
      return kPanelRows * depth() + kLineBytes;
    case WeightFormat::kI4:
      return depth() / 64 * 9 * kLineBytes;
  }
  CHECK(false);
}

float ScaleAt(const PackedMatrix& w, int64_t matrix, int64_t row, int64_t group) {
  const std::byte* base = w.panel(matrix, row / kPanelRows);
  if (w.format == WeightFormat::kF8) {
    return LoadElement(base + group * Fp8BlockBytes(), row % kPanelRows, DType::kF32);
  }
  if (w.format == WeightFormat::kI8) {
    return LoadElement(base + Int8Scales(w), row % kPanelRows, DType::kF32);
  }
  CHECK(w.format == WeightFormat::kI4);
  return LoadElement(base + Int4Scale(row, group), 0, DType::kF16);
}

int QuantisedAt(const PackedMatrix& w, int64_t matrix, int64_t row, int64_t col) {
  const std::byte* base = w.panel(matrix, row / kPanelRows);
  const int64_t lane = row % kPanelRows;
  if (w.format == WeightFormat::kI8) {
    return static_cast<int8_t>(base[col / 4 * kLineBytes + lane * 4 + col % 4]);
  }
  CHECK(w.format == WeightFormat::kI4);
  const auto both =
      static_cast<int>(base[Int4Line(col) + col % 64 / 8 * kLineBytes + lane * 4 + col % 4]);
  return (col % 8 < 4 ? both & 15 : both >> 4) - 8;
}

float PackedMatrix::At(int64_t matrix, int64_t row, int64_t col) const {
  const std::byte* base = panel(matrix, row / kPanelRows);
  const int64_t lane = row % kPanelRows;
  if (format == WeightFormat::kF32) {
    return LoadElement(base, col * kPanelRows + lane, DType::kF32);
  }
  if (format == WeightFormat::kBF16) {
    return LoadElement(base, (col / 2 * kPanelRows + lane) * 2 + col % 2, DType::kBF16);
  }
  if (format == WeightFormat::kF8) {
    const std::byte* block = base + col / kFp8Columns * Fp8BlockBytes();
    const auto code = static_cast<uint8_t>(block[Fp8Code(lane, col % kFp8Columns)]);
    return FloatOfE4M3(code) * ScaleAt(*this, matrix, row, col / kFp8Columns);
  }
  return static_cast<float>(QuantisedAt(*this, matrix, row, col)) *
         ScaleAt(*this, matrix, row, col / 32);
}

void PackPanel(const PackedMatrix& to, int64_t matrix, int64_t p, const std::byte* const rows[16],
               DType dtype) {
  if (IsQuantised(to.format)) return QuantisePanel(to, matrix, p, rows, dtype);
  std::byte* base = const_cast<std::byte*>(to.panel(matrix, p));
  if (to.format == WeightFormat::kF32) PackF32(to, base, rows, dtype);
  if (to.format == WeightFormat::kBF16) PackBf16(to, base, rows, dtype);
  _mm_sfence();
}

}  // namespace braid::ops
