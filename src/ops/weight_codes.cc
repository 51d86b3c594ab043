// Quantising a row; runs for every weight at load, so its loops are written for the compiler to
// vectorise.
#include "ops/weight_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace braid::ops {
namespace {

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

using Quantiser = void (*)(const float* x, int64_t count, std::byte* codes, std::byte* scale);
struct Coding {
  Quantiser quantise;
  int64_t columns;  // that share a scale; 0: all
  DType scale;
  int64_t bits;  // of a code
};
Coding CodingOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF8:
      return {QuantiseToLargest<Fp8>, kFp8Columns, DType::kF32, 8};
    case WeightFormat::kI8:
      return {QuantiseToLargest<Int8>, 0, DType::kF32, 8};
    case WeightFormat::kI4:
      return {QuantiseInt4, kInt4Columns, DType::kF16, 4};
    default:
      CHECK(false, "{} has no codes", NameOf(format));
  }
}

}  // namespace

int64_t ScalesPerRow(WeightFormat format, int64_t k) {
  const int64_t columns = CodingOf(format).columns;
  return columns == 0 ? 1 : CeilDiv(k, columns);
}

DType ScaleTypeOf(WeightFormat format) { return CodingOf(format).scale; }

int64_t CodeBytes(WeightFormat format, int64_t k) {
  return CodingOf(format).bits == 8 ? k : 4 * CeilDiv(k, kCodesPerWord);
}

void QuantiseRow(WeightFormat format, const float* x, int64_t k, std::byte* codes,
                 std::byte* scales) {
  const Coding coding = CodingOf(format);
  const int64_t columns = coding.columns == 0 ? k : coding.columns;
  for (int64_t begin = 0; begin < k; begin += columns, scales += SizeOf(coding.scale)) {
    coding.quantise(x + begin, std::min(columns, k - begin), codes + begin * coding.bits / 8,
                    scales);
  }
}

}  // namespace braid::ops
