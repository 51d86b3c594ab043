// Quantising a row; runs for every weight at load, so its loops are written for the compiler to
// vectorise.
#include "ops/weight_codes.h"

#include <algorithm>
#include <cmath>

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

// Numbers that share a scale; returns it.
template <class Code>
float QuantiseToLargest(const float* x, int64_t count, std::byte* codes) {
  const float most = LargestMagnitude(x, count);
  if (!std::isfinite(most) || most < 0x1p-100f) {
    std::fill_n(codes, count, std::byte{0});
    return std::isfinite(most) ? 0.0f : NAN;  // and so every output
  }
  const float factor = Code::kLargest / most;
  for (int64_t c = 0; c < count; ++c) codes[c] = Code::CodeOf(x[c] * factor);
  return most / Code::kLargest;
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

float QuantiseInt4(const float* x, int64_t count, std::byte* codes) {
  const float most = LargestOf(x, count);
  if (std::isnan(most)) {
    std::fill_n(codes, count, std::byte{0});
    return NAN;
  }
  const float scale = FloatOfF16(F16OfFloat(std::clamp(most / -8.0f, -65504.0f, 65504.0f)));
  const float factor = scale == 0.0f ? 0.0f : 1.0f / scale;
  // Rounding before or after the bounds is the same, for they are integers.
  for (int64_t c = 0; c < count; ++c) {
    const float bounded = std::max(-8.0f, std::min(x[c] * factor, 7.0f));
    codes[c] = IntegerOf(bounded);
  }
  return scale;
}

using Quantiser = float (*)(const float* x, int64_t count, std::byte* codes);
struct Coding {
  Quantiser quantise;
  int64_t columns;  // that share a scale; 0: all
};
Coding CodingOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF8:
      return {QuantiseToLargest<Fp8>, kFp8Columns};
    case WeightFormat::kI8:
      return {QuantiseToLargest<Int8>, 0};
    case WeightFormat::kI4:
      return {QuantiseInt4, kInt4Columns};
    default:
      CHECK(false, "{} has no codes", NameOf(format));
  }
}

}  // namespace

int64_t ScalesPerRow(WeightFormat format, int64_t k) {
  const int64_t columns = CodingOf(format).columns;
  return columns == 0 ? 1 : CeilDiv(k, columns);
}

void QuantiseRow(WeightFormat format, const float* x, int64_t k, std::byte* codes, float* scales) {
  const Coding coding = CodingOf(format);
  const int64_t columns = coding.columns == 0 ? k : coding.columns;
  for (int64_t begin = 0; begin < k; begin += columns) {
    *scales++ = coding.quantise(x + begin, std::min(columns, k - begin), codes + begin);
  }
}

}  // namespace braid::ops
