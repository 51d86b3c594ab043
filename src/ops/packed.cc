// Packing of checkpoint rows into panels, and quantisation on the way; runs once per weight at
// load, so its loops are written for the compiler to vectorise.
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

// 16 rows of 4-byte elements become lines: out[c * 16 + r] = rows[r][c]. Rows are often a power of
// two apart, where a cache has room for few of them: four rows at a time, a whole line of each. The
// lines go past the caches: nobody reads them soon.
void Transpose(const std::byte* const rows[16], int64_t count, std::byte* out) {
  constexpr int64_t kBlock = 16;
  float* to = reinterpret_cast<float*>(out);
  alignas(64) float block[kBlock * kPanelRows];
  int64_t c = 0;
  for (; c + kBlock <= count; c += kBlock) {
    for (int64_t r = 0; r < kPanelRows; r += 4) {
      for (int64_t i = 0; i < kBlock; i += 4) {
        Transpose4(rows + r, c + i, block + i * kPanelRows + r);
      }
    }
    for (int64_t i = 0; i < kBlock * kPanelRows; i += 4) {
      _mm_stream_ps(to + c * kPanelRows + i, _mm_load_ps(block + i));
    }
  }
  _mm_sfence();
  for (; c < count; ++c) {
    for (int64_t r = 0; r < kPanelRows; ++r) {
      std::memcpy(out + 4 * (c * kPanelRows + r), rows[r] + 4 * c, 4);
    }
  }
}

// Rows of `words` 4-byte elements each, in one piece, as lines of the panel.
void TransposeAll(const std::vector<uint32_t>& rows, int64_t words, std::byte* base) {
  const std::byte* pointers[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) {
    pointers[r] = reinterpret_cast<const std::byte*>(rows.data() + r * words);
  }
  Transpose(pointers, words, base);
}

// The largest |x|; NaN or infinity if there is one. As bits, magnitudes order like integers.
float LargestMagnitude(const float* x, int64_t count) {
  int32_t most = 0;
  for (int64_t c = 0; c < count; ++c) {
    most = std::max(most, std::bit_cast<int32_t>(x[c]) & 0x7fffffff);
  }
  return std::bit_cast<float>(most);
}

// q[c] = x[c] * factor to the nearest integer, within ±127.
void QuantiseInt8(const float* x, int64_t count, float factor, int8_t* q) {
  for (int64_t c = 0; c < count; ++c) {
    // Adding 1.5 * 2^23 leaves the integer in the low bits, rounded as every sum is.
    const float shifted = x[c] * factor + 12582912.0f;
    q[c] = static_cast<int8_t>(std::bit_cast<int32_t>(shifted) & 0xff);
  }
}

void PackInt8(const PackedMatrix& to, std::byte* base, const std::byte* const rows[16],
              DType dtype) {
  const int64_t words = to.depth() / 4;
  std::vector<uint32_t> quantised(static_cast<size_t>(kPanelRows * words));
  std::vector<float> x(static_cast<size_t>(to.k));
  float* scales = reinterpret_cast<float*>(base + Int8Scales(to));
  for (int64_t r = 0; r < kPanelRows; ++r) {
    scales[r] = 0;
    if (!rows[r]) continue;
    LoadRow(rows[r], to.k, dtype, x.data());
    const float most = LargestMagnitude(x.data(), to.k);
    if (!std::isfinite(most)) scales[r] = NAN;  // and so every output
    if (!std::isfinite(most) || most < 0x1p-100f) continue;
    scales[r] = most / 127.0f;
    QuantiseInt8(x.data(), to.k, 127.0f / most,
                 reinterpret_cast<int8_t*>(quantised.data() + r * words));
  }
  TransposeAll(quantised, words, base);
}

// One group of one output: fills q + 8 and returns the scale's bits.
uint16_t QuantiseInt4(const float* x, int64_t count, uint8_t* q) {
  if (!std::isfinite(LargestMagnitude(x, count))) {
    std::fill_n(q, count, uint8_t{8});
    return 0x7e00;  // NaN, and so every output
  }
  float most = 0;
  for (int64_t c = 0; c < count; ++c) most = std::abs(x[c]) > std::abs(most) ? x[c] : most;
  const uint16_t bits = F16OfFloat(std::clamp(most / -8.0f, -65504.0f, 65504.0f));
  const float scale = FloatOfF16(bits), factor = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (int64_t c = 0; c < count; ++c) {
    // Rounded as in QuantiseInt8; before or after the bounds is the same, for they are integers.
    const float shifted = std::clamp(x[c] * factor, -8.0f, 7.0f) + 12582912.0f;
    q[c] = static_cast<uint8_t>((std::bit_cast<uint32_t>(shifted) & 0xff) + 8);
  }
  return bits;
}

void PackInt4(const PackedMatrix& to, std::byte* base, const std::byte* const rows[16],
              DType dtype) {
  std::vector<float> x(static_cast<size_t>(to.depth()));
  for (int64_t r = 0; r < kPanelRows; ++r) {
    std::fill(x.begin(), x.end(), 0.0f);
    if (rows[r]) LoadRow(rows[r], to.k, dtype, x.data());
    for (int64_t g = 0; g < to.depth() / 32; ++g) {
      uint8_t q[32];
      const uint16_t bits = QuantiseInt4(x.data() + g * 32, 32, q);
      std::memcpy(base + Int4Scale(r, g), &bits, 2);
      uint8_t* lines = reinterpret_cast<uint8_t*>(base + Int4Line(g * 32)) + g % 2 * 4 * kLineBytes;
      for (int64_t line = 0; line < 4; ++line) {
        for (int64_t j = 0; j < 4; ++j) {
          lines[line * kLineBytes + r * 4 + j] =
              static_cast<uint8_t>(q[line * 8 + j] | q[line * 8 + 4 + j] << 4);
        }
      }
    }
  }
}

void PackF32(const PackedMatrix& to, std::byte* base, const std::byte* const rows[16],
             DType dtype) {
  std::vector<uint32_t> wide(static_cast<size_t>(kPanelRows * to.depth()));
  for (int64_t r = 0; r < kPanelRows; ++r) {
    float* row = reinterpret_cast<float*>(wide.data() + r * to.depth());
    if (rows[r]) LoadRow(rows[r], to.k, dtype, row);
  }
  TransposeAll(wide, to.depth(), base);
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
constexpr int64_t Fp8BlockBytes() { return kLineBytes + kFp8Block * kPanelRows; }

// Where the code of column c of a block is.
constexpr int64_t Fp8Code(int64_t row, int64_t c) {
  const int64_t at = row * 2 + c % 2;  // of the pair's 32
  return kLineBytes + c / 4 * kLineBytes + at / 8 * 16 + c / 2 % 2 * 8 + at % 8;
}

// Codes and scales of one row, as PackPanel says.
void QuantiseFp8(const float* x, int64_t k, std::byte* codes, float* scales) {
  for (int64_t begin = 0; begin < k; begin += kFp8Block, ++scales) {
    const int64_t count = std::min(kFp8Block, k - begin);
    const float most = LargestMagnitude(x + begin, count);
    const bool some = std::isfinite(most) && most >= 0x1p-100f;
    *scales = !std::isfinite(most) ? NAN : some ? most / 448.0f : 0.0f;
    const float factor = some ? 448.0f / most : 0.0f;
    for (int64_t c = begin; c < begin + count; ++c) {
      codes[c] = std::byte{some ? E4M3OfFloat(x[c] * factor) : uint8_t{0}};
    }
  }
}

void QuantiseFp8Panel(const PackedMatrix& to, int64_t matrix, int64_t p,
                      const std::byte* const rows[16], DType dtype) {
  const int64_t blocks = CeilDiv(to.k, kFp8Block);
  std::vector<std::byte> codes(static_cast<size_t>(kPanelRows * to.k));
  std::vector<float> scales(static_cast<size_t>(kPanelRows * blocks));
  std::vector<float> x(static_cast<size_t>(to.k));
  Fp8Row packed[16];
  for (int64_t r = 0; r < kPanelRows; ++r) {
    if (!rows[r]) continue;
    LoadRow(rows[r], to.k, dtype, x.data());
    QuantiseFp8(x.data(), to.k, codes.data() + r * to.k, scales.data() + r * blocks);
    packed[r] = {codes.data() + r * to.k, scales.data() + r * blocks};
  }
  PackFp8Panel(to, matrix, p, packed);
}

}  // namespace

void PackFp8Panel(const PackedMatrix& to, int64_t matrix, int64_t p, const Fp8Row (&rows)[16]) {
  std::byte* base = const_cast<std::byte*>(to.panel(matrix, p));
  std::memset(base, 0, static_cast<size_t>(to.panel_bytes()));
  for (int64_t r = 0; r < kPanelRows; ++r) {
    if (!rows[r].codes) continue;
    for (int64_t begin = 0; begin < to.k; begin += kFp8Block) {
      std::byte* block = base + begin / kFp8Block * Fp8BlockBytes();
      float scale = rows[r].scales[begin / kFp8Block];
      for (int64_t c = 0; c < std::min(kFp8Block, to.k - begin); ++c) {
        const std::byte code = rows[r].codes[begin + c];
        // Kernels know no code that is not a number; the scale says it.
        if ((code & std::byte{0x7f}) == std::byte{0x7f}) scale = NAN;
        block[Fp8Code(r, c)] = code;
      }
      std::memcpy(block + 4 * r, &scale, 4);
    }
  }
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
      return depth() / kFp8Block * Fp8BlockBytes();
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
    const std::byte* block = base + col / kFp8Block * Fp8BlockBytes();
    const auto code = static_cast<uint8_t>(block[Fp8Code(lane, col % kFp8Block)]);
    return FloatOfE4M3(code) * ScaleAt(*this, matrix, row, col / kFp8Block);
  }
  return static_cast<float>(QuantisedAt(*this, matrix, row, col)) *
         ScaleAt(*this, matrix, row, col / 32);
}

void PackPanel(const PackedMatrix& to, int64_t matrix, int64_t p, const std::byte* const rows[16],
               DType dtype) {
  std::byte* base = const_cast<std::byte*>(to.panel(matrix, p));
  switch (to.format) {
    case WeightFormat::kF32:
      return PackF32(to, base, rows, dtype);
    case WeightFormat::kF8:
      return QuantiseFp8Panel(to, matrix, p, rows, dtype);
    case WeightFormat::kI8:
      return PackInt8(to, base, rows, dtype);
    case WeightFormat::kI4:
      return PackInt4(to, base, rows, dtype);
    case WeightFormat::kBF16:
      return PackBf16(to, base, rows, dtype);
  }
}

}  // namespace braid::ops
