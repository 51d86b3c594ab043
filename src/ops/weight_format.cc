// The table, and for each format how numbers become codes and codes lines of a panel. Both run for
// every weight at load, so their loops are written for the compiler to vectorise.
#include "ops/weight_format.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/grouped/grouped_format.h"
#include "ops/grouped/transpose.h"

namespace braid::ops {
namespace {

constexpr int64_t kLineBytes = 64;

// The largest |x|; NaN or infinity if there is one. As bits, magnitudes order like integers.
float LargestMagnitude(const float* x, int64_t count) {
  int32_t most = 0;
  for (int64_t c = 0; c < count; ++c) {
    most = std::max(most, std::bit_cast<int32_t>(x[c]) & 0x7fffffff);
  }
  return std::bit_cast<float>(most);
}

// x to the nearest integer, for |x| < 2^22: adding 1.5 * 2^23 leaves it in the low bits, rounded as
// every sum is.
std::byte IntegerOf(float x) {
  return static_cast<std::byte>(std::bit_cast<uint32_t>(x + 12582912.0f) & 0xff);
}

struct Fp8 {
  static constexpr float kLargest = 448.0f;
  static std::byte CodeOf(float x) { return std::byte{E4M3OfFloat(x)}; }
};
struct Int8 {
  static constexpr float kLargest = 127.0f;
  static std::byte CodeOf(float x) { return IntegerOf(x); }
};

// Numbers that share a scale, which is written too.
template <class Code>
void QuantiseToLargest(const float* x, int64_t count, std::byte* codes, std::byte* scale) {
  const float most = LargestMagnitude(x, count);
  float value = 0.0f;
  if (!std::isfinite(most)) {
    value = NAN;  // and so every output
  } else if (most >= 0x1p-100f) {
    value = most / Code::kLargest;
  }
  std::memcpy(scale, &value, sizeof value);
  if (!(value > 0.0f)) {
    std::fill_n(codes, count, std::byte{0});
    return;
  }
  const float factor = Code::kLargest / most;
  for (int64_t c = 0; c < count; ++c) codes[c] = Code::CodeOf(x[c] * factor);
}

void QuantiseQ8_0(const float* x, int64_t count, std::byte* codes, std::byte* scale) {
  const float most = LargestMagnitude(x, count);
  const uint16_t half = F16OfFloat(std::isfinite(most) ? std::min(most / 127.0f, 65504.0f) : NAN);
  const float value = FloatOfF16(half);
  const float factor = value > 0.0f ? 1.0f / value : 0.0f;
  // The rounded scale may be too small for the largest x.
  for (int64_t c = 0; c < count; ++c) {
    codes[c] = IntegerOf(std::max(-127.0f, std::min(x[c] * factor, 127.0f)));
  }
  std::memcpy(scale, &half, sizeof half);
}

// The x of largest magnitude, the positive one of two; NaN where one is not finite. As integers,
// floats with the bits of negative ones turned over are in order.
float LargestOf(const float* x, int64_t count) {
  constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  int32_t most = 0, least = 0;
  for (int64_t c = 0; c < count; ++c) {
    const auto bits = std::bit_cast<int32_t>(x[c]);
    const int32_t key = bits ^ (bits >> 31 & kMagnitude);
    most = std::max(most, key);
    least = std::min(least, key);
  }
  const int32_t below = ~least;  // the magnitude of the least
  if (most >= kInfinity || below >= kInfinity) return NAN;
  return most >= below ? std::bit_cast<float>(most) : -std::bit_cast<float>(below);
}

void QuantiseInt4(const float* x, int64_t count, std::byte* words, std::byte* scale) {
  const float most = LargestOf(x, count);
  const uint16_t half = F16OfFloat(std::clamp(most / -8.0f, -65504.0f, 65504.0f));
  const float value = FloatOfF16(half);
  const float factor = value == 0.0f || std::isnan(value) ? 0.0f : 1.0f / value;
  std::byte codes[kInt4Columns] = {};
  // Rounding before or after the bounds is the same, for they are integers.
  for (int64_t c = 0; c < count; ++c) {
    codes[c] = IntegerOf(std::max(-8.0f, std::min(x[c] * factor, 7.0f)));
  }
  for (int64_t c = 0; c < count; c += kCodesPerWord) {
    uint64_t eight;
    std::memcpy(&eight, codes + c, sizeof eight);
    const uint32_t word = WordOfHalves(eight) ^ kZeroWord;
    std::memcpy(words + c / 2, &word, sizeof word);
  }
  std::memcpy(scale, &half, sizeof half);
}

void KeepF32(const float* x, int64_t count, std::byte* codes, std::byte*) {
  std::memcpy(codes, x, static_cast<size_t>(4 * count));
}

template <uint16_t (*kOfFloat)(float)>
void RoundRow(const float* x, int64_t count, std::byte* codes, std::byte*) {
  for (int64_t c = 0; c < count; ++c) {
    const uint16_t bits = kOfFloat(x[c]);
    std::memcpy(codes + 2 * c, &bits, sizeof bits);
  }
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
// `Finish`; count is a multiple of 4. Rows are often a power of two apart, where a cache holds few
// of them, so the loop takes four rows at a time, a whole line of each. The lines go past the
// caches, because nobody reads them soon.
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

// The first halves of four words, then the second ones: of 16 rows of fp16 two columns change in
// turns of four rows, of a line of bytes [16][4] two pairs [16][2].
struct TurnsOfFour {
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

// Where code `col` of row `lane` begins in lines that pack whole words.
template <int64_t kBytes>
constexpr int64_t OffsetOf(int64_t lane, int64_t col) {
  constexpr int64_t kPerWord = 4 / kBytes;
  return col / kPerWord * kLineBytes + lane * 4 + col % kPerWord * kBytes;
}

float F32At(const std::byte* lines, int64_t lane, int64_t col) {
  float value;
  std::memcpy(&value, lines + OffsetOf<4>(lane, col), sizeof value);
  return value;
}
float F16At(const std::byte* lines, int64_t lane, int64_t col) {
  uint16_t bits;
  std::memcpy(&bits, lines + col / 2 * kLineBytes + lane / 4 * 16 + col % 2 * 8 + lane % 4 * 2,
              sizeof bits);
  return FloatOfF16(bits);
}
float Bf16At(const std::byte* lines, int64_t lane, int64_t col) {
  uint16_t bits;
  std::memcpy(&bits, lines + OffsetOf<2>(lane, col), sizeof bits);
  return FloatOfBf16(bits);
}
float Fp8At(const std::byte* lines, int64_t lane, int64_t col) {
  const int64_t at = lane * 2 + col % 2;  // of the pair's 32
  const std::byte code = lines[col / 4 * kLineBytes + at / 8 * 16 + col / 2 % 2 * 8 + at % 8];
  return FloatOfE4M3(static_cast<uint8_t>(code));
}
float Int8At(const std::byte* lines, int64_t lane, int64_t col) {
  return static_cast<float>(static_cast<int8_t>(lines[OffsetOf<1>(lane, col)]));
}
float Int4At(const std::byte* lines, int64_t lane, int64_t col) {
  const auto both = static_cast<int>(lines[col / 8 * kLineBytes + lane * 4 + col % 4]);
  return static_cast<float>((col % 8 < 4 ? both & 15 : both >> 4) - 8);
}

constexpr WeightFormatRow kRows[] = {
    {.format = WeightFormat::kF32,
     .name = "fp32",
     .depth_multiple = 16,
     .code_bits = 32,
     .coded_bits = 32,
     .plain = DType::kF32,
     .quantise = KeepF32,
     .pack = TransposeBlocks<AsItIs>,
     .code_at = F32At},
    {.format = WeightFormat::kF16,
     .name = "fp16",
     .depth_multiple = 32,
     .code_bits = 16,
     .coded_bits = 16,
     .plain = DType::kF16,
     .quantise = RoundRow<F16OfFloat>,
     .pack = TransposeBlocks<TurnsOfFour>,
     .code_at = F16At},
    {.format = WeightFormat::kBF16,
     .name = "bf16",
     .depth_multiple = 32,
     .code_bits = 16,
     .coded_bits = 16,
     .plain = DType::kBF16,
     .quantise = RoundRow<Bf16OfFloat>,
     .pack = TransposeBlocks<AsItIs>,
     .code_at = Bf16At},
    {.format = WeightFormat::kF8,
     .name = "fp8",
     .depth_multiple = kFp8Columns,
     .code_bits = 8,
     .coded_bits = 8,
     .numbers = {{{NumberType::kF32, kFp8Columns}}},
     .group = kFp8Columns,
     .quantise = QuantiseToLargest<Fp8>,
     .has_nan = HasNaN,
     .pack = TransposeBlocks<TurnsOfFour>,
     .code_at = Fp8At},
    {.format = WeightFormat::kI8,
     .name = "int8",
     .integers = true,
     .depth_multiple = 64,
     .code_bits = 8,
     .coded_bits = 8,
     .numbers = {{{NumberType::kF32, 0}}},
     .quantise = QuantiseToLargest<Int8>,
     .pack = TransposeBlocks<AsItIs>,
     .code_at = Int8At},
    {.format = WeightFormat::kQ8_0,
     .name = "q8_0",
     .integers = true,
     .depth_multiple = 64,
     .code_bits = 8,
     .coded_bits = 8,
     .numbers = {{{NumberType::kF16, 32}}},
     .group = 32,
     .quantise = QuantiseQ8_0,
     .pack = TransposeBlocks<AsItIs>,
     .code_at = Int8At},
    GroupedRow<WeightFormat::kQ8KM>("q8_km"),
    GroupedRow<WeightFormat::kQ6KM>("q6_km"),
    GroupedRow<WeightFormat::kQ6K>("q6_k"),
    GroupedRow<WeightFormat::kQ5K>("q5_k"),
    GroupedRow<WeightFormat::kQ5_1>("q5_1"),
    GroupedRow<WeightFormat::kQ5_0>("q5_0"),
    GroupedRow<WeightFormat::kQ4K>("q4_k"),
    GroupedRow<WeightFormat::kQ4_1>("q4_1"),
    GroupedRow<WeightFormat::kI4Z32>("int4_zp32"),
    GroupedRow<WeightFormat::kI4Z>("int4_zp"),
    GroupedRow<WeightFormat::kIQ4XS>("iq4_xs"),
    GroupedRow<WeightFormat::kIQ4NL>("iq4_nl"),
    {.format = WeightFormat::kI4,
     .name = "int4",
     .integers = true,
     .depth_multiple = 64,
     .code_bits = 4,
     .coded_bits = 4,
     .zero = std::byte{kZeroWord & 0xff},
     .numbers = {{{NumberType::kF16, kInt4Columns}}},
     .group = kInt4Columns,
     .quantise = QuantiseInt4,
     .pack = TransposeBlocks<InHalves>,
     .code_at = Int4At},
    GroupedRow<WeightFormat::kNvfp4>("nvfp4"),
    GroupedRow<WeightFormat::kNvfp4D>("nvfp4_d"),
    GroupedRow<WeightFormat::kMxfp4>("mxfp4"),
    GroupedRow<WeightFormat::kIQ3XXS>("iq3_xxs"),
    GroupedRow<WeightFormat::kIQ3S>("iq3_s"),
    GroupedRow<WeightFormat::kQ3K>("q3_k"),
    GroupedRow<WeightFormat::kQ2K>("q2_k"),
    GroupedRow<WeightFormat::kIQ2>("iq2"),
    GroupedRow<WeightFormat::kIQ1>("iq1"),
};

// Every row stands where its format says, so that RowOf is an index.
static_assert([] {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].format != static_cast<WeightFormat>(i)) return false;
  }
  return true;
}());

}  // namespace

int64_t WeightFormatRow::unit() const {
  int64_t most = 0;
  for (const SharedNumber& number : numbers) most = std::max(most, number.columns);
  return most;
}

int64_t WeightFormatRow::UnitBytes() const {
  int64_t bytes = 0;
  for (const SharedNumber& number : numbers) {
    bytes += (number.columns == 0 ? 1 : unit() / number.columns) * number.bytes();
  }
  return bytes;
}

std::span<const WeightFormatRow> WeightFormats() { return kRows; }

const WeightFormatRow& RowOf(WeightFormat format) { return kRows[static_cast<size_t>(format)]; }

std::optional<WeightFormat> FindWeightFormat(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &WeightFormatRow::name);
  if (row == std::end(kRows)) return {};
  return row->format;
}

float NumberOf(const std::byte* at, NumberType type) {
  const auto byte = [at] { return static_cast<uint8_t>(*at); };
  uint16_t half;
  float whole;
  switch (type) {
    case NumberType::kF32:
      std::memcpy(&whole, at, sizeof whole);
      return whole;
    case NumberType::kF16:
      std::memcpy(&half, at, sizeof half);
      return FloatOfF16(half);
    case NumberType::kF16By8:
      std::memcpy(&half, at, sizeof half);
      return FloatOfF16(half) * 0.125f;
    case NumberType::kU8:
      return static_cast<float>(byte());
    case NumberType::kI8:
      return static_cast<float>(static_cast<int8_t>(byte()));
    case NumberType::kF8:
      return FloatOfE4M3(byte());
    case NumberType::kE8M0:
      return FloatOfE8M0(byte()) * 0.5f;
    default:
      return 1.0f;
  }
}

bool NumbersAreFinite(WeightFormat format, const std::byte* numbers, int64_t k) {
  const WeightFormatRow& row = RowOf(format);
  const int64_t unit = row.unit();
  bool finite = true;
  for (int64_t begin = 0; begin < (unit == 0 ? 1 : k); begin += unit == 0 ? 1 : unit) {
    for (const SharedNumber& number : row.numbers) {
      if (number.type == NumberType::kNone) continue;
      const int64_t count = number.columns == 0 ? 1 : unit / number.columns;
      const bool integers = number.type == NumberType::kU8 || number.type == NumberType::kI8;
      for (int64_t i = 0; i < count && !integers; ++i) {
        finite = finite && std::isfinite(NumberOf(numbers + i * number.bytes(), number.type));
      }
      numbers += count * number.bytes();
    }
  }
  return finite;
}

WeightFormat FormatFor(DType dtype) {
  const auto* row = std::ranges::find(kRows, dtype, &WeightFormatRow::plain);
  return row == std::end(kRows) ? WeightFormat::kF32 : row->format;
}

void QuantiseRow(WeightFormat format, const float* x, int64_t k, std::byte* codes,
                 std::byte* scales) {
  const WeightFormatRow& row = RowOf(format);
  const int64_t columns = row.unit() == 0 ? k : row.unit();
  for (int64_t begin = 0; begin < k; begin += columns, scales += row.UnitBytes()) {
    row.quantise(x + begin, std::min(columns, k - begin), codes + begin * row.coded_bits / 8,
                 scales);
  }
}

}  // namespace braid::ops
