// Conversions of scalars, over all codes of the small types: values by their definitions, rounding
// to the nearest, ties to even.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace braid {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The value of a code of 1 sign, `exponent_bits` and `mantissa_bits` bits, by IEEE's rule for
// numbers.
double ValueOf(uint32_t code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(code >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double sign = code >> (exponent_bits + mantissa_bits) & 1u ? -1.0 : 1.0;
  const double unit = std::exp2(-mantissa_bits);
  if (exponent == 0) return sign * mantissa * unit * std::exp2(1 - bias);
  return sign * (1.0 + mantissa * unit) * std::exp2(exponent - bias);
}

TEST(DType, SizesAndNamesAreThoseOfTheirTypes) {
  const std::tuple<DType, int64_t, std::string_view> kTypes[] = {
      {DType::kF32, 4, "f32"},   {DType::kF16, 2, "f16"}, {DType::kBF16, 2, "bf16"},
      {DType::kF64, 8, "f64"},   {DType::kI8, 1, "i8"},   {DType::kU8, 1, "u8"},
      {DType::kI32, 4, "i32"},   {DType::kI64, 8, "i64"}, {DType::kF8E4M3, 1, "f8e4m3"},
      {DType::kBool, 1, "bool"}, {DType::kI16, 2, "i16"}, {DType::kF8E8M0, 1, "f8e8m0"}};
  for (const auto& [type, size, name] : kTypes) {
    EXPECT_EQ(SizeOf(type), size) << name;
    EXPECT_EQ(NameOf(type), name);
  }
}

TEST(Bf16, EveryNumberSurvivesTheWayThereAndBack) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float value = FloatOfBf16(static_cast<uint16_t>(bits));
    ASSERT_EQ(value, static_cast<float>(ValueOf(bits, 8, 7)));
    ASSERT_EQ(Bf16OfFloat(value), bits);
    ASSERT_EQ(Bf16OfFloat(-value), bits | 0x8000u);
  }
}

TEST(Bf16, RoundsToNearestTiesToEvenAndKeepsNanAndInfinity) {
  for (uint32_t bits : {0x3f80u, 0x3f81u, 0x0001u, 0x7f7eu}) {
    const float low = FloatOfBf16(static_cast<uint16_t>(bits));
    const float half = std::bit_cast<float>((bits << 16) + 0x8000u);
    EXPECT_EQ(Bf16OfFloat(half), bits + (bits & 1u)) << low;
    EXPECT_EQ(Bf16OfFloat(std::bit_cast<float>((bits << 16) + 0x7fffu)), bits) << low;
    EXPECT_EQ(Bf16OfFloat(std::bit_cast<float>((bits << 16) + 0x8001u)), bits + 1) << low;
    EXPECT_EQ(RoundToBf16(half), FloatOfBf16(static_cast<uint16_t>(bits + (bits & 1u))));
  }
  EXPECT_EQ(RoundToBf16(-kInfinity), -kInfinity);
  EXPECT_EQ(RoundToBf16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_TRUE(std::isnan(RoundToBf16(kNan)));
  // A NaN whose payload lies in the bits that are cut off.
  EXPECT_TRUE(std::isnan(RoundToBf16(std::bit_cast<float>(0x7f800001u))));
  EXPECT_TRUE(std::isnan(RoundToBf16(std::bit_cast<float>(0xffffffffu))));
}

TEST(F16, EveryNumberSurvivesAndHalfwayGoesToEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float value = FloatOfF16(static_cast<uint16_t>(bits));
    ASSERT_EQ(value, static_cast<float>(ValueOf(bits, 5, 10)));
    ASSERT_EQ(FloatOfF16(static_cast<uint16_t>(bits | 0x8000u)), -value);
    ASSERT_EQ(F16OfFloat(value), bits);
    ASSERT_EQ(F16OfFloat(-value), bits | 0x8000u);
    const float next = bits == 0x7bff ? 65536.0f : FloatOfF16(static_cast<uint16_t>(bits + 1));
    const float half = (value + next) / 2;
    ASSERT_EQ(F16OfFloat(half), bits + (bits & 1));
    ASSERT_EQ(F16OfFloat(std::nextafter(half, 0.0f)), bits);
    ASSERT_EQ(F16OfFloat(std::nextafter(half, kInfinity)), bits + 1);
  }
  EXPECT_TRUE(std::signbit(FloatOfF16(0x8000)));
}

TEST(F16, NanAndInfinityStayAndTooLargeBecomesInfinity) {
  EXPECT_EQ(FloatOfF16(0x7c00), kInfinity);
  EXPECT_EQ(FloatOfF16(0xfc00), -kInfinity);
  for (uint16_t bits : {uint16_t{0x7c01}, uint16_t{0x7e00}, uint16_t{0xffff}}) {
    EXPECT_TRUE(std::isnan(FloatOfF16(bits)));
  }
  EXPECT_EQ(F16OfFloat(1e6f), 0x7c00);
  EXPECT_EQ(F16OfFloat(-kInfinity), 0xfc00);
  EXPECT_EQ(F16OfFloat(65519.0f), 0x7bff);
  EXPECT_EQ(F16OfFloat(65520.0f), 0x7c00);
  EXPECT_EQ(F16OfFloat(kNan) & 0x7e00, 0x7e00);
  EXPECT_EQ(F16OfFloat(-0.0f), 0x8000);
}

TEST(E4M3, EveryCodeIsItsNumberAndTheNearestTiesToEven) {
  for (int code = 0; code < 256; ++code) {
    const float value = FloatOfE4M3(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(value, static_cast<float>(ValueOf(static_cast<uint32_t>(code), 4, 3))) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    EXPECT_EQ(E4M3OfFloat(value), code);
    if ((code & 0x7f) == 0x7e) continue;
    const float next = FloatOfE4M3(static_cast<uint8_t>(code + 1)), half = (value + next) / 2;
    EXPECT_EQ(E4M3OfFloat(half), code % 2 == 0 ? code : code + 1) << half;
    EXPECT_EQ(E4M3OfFloat(std::nextafter(half, value)), code) << half;
    EXPECT_EQ(E4M3OfFloat(std::nextafter(half, next)), code + 1) << half;
  }
}

TEST(E4M3, LargerNumbersBecomeTheLargestAndANanStaysANan) {
  EXPECT_EQ(E4M3OfFloat(1e9f), 0x7e);
  EXPECT_EQ(E4M3OfFloat(449.0f), 0x7e);
  EXPECT_EQ(E4M3OfFloat(-kInfinity), 0xfe);
  EXPECT_EQ(E4M3OfFloat(kInfinity), 0x7e);
  EXPECT_EQ(E4M3OfFloat(kNan) & 0x7f, 0x7f);
}

TEST(E8M0, IsAPowerOfTwoOrNotANumber) {
  for (int bits = 0; bits < 255; ++bits) {
    EXPECT_EQ(FloatOfE8M0(static_cast<uint8_t>(bits)), std::exp2(static_cast<float>(bits - 127)));
  }
  EXPECT_TRUE(std::isnan(FloatOfE8M0(0xff)));
}

TEST(E2M1, TheLowFourBitsAreANumberAndTheOthersAreIgnored) {
  for (uint32_t code = 0; code < 16; ++code) {
    const float value = static_cast<float>(ValueOf(code, 2, 1));
    EXPECT_EQ(FloatOfE2M1(static_cast<uint8_t>(code)), value);
    EXPECT_EQ(FloatOfE2M1(static_cast<uint8_t>(code | 0xf0u)), value);
    EXPECT_EQ(std::signbit(FloatOfE2M1(static_cast<uint8_t>(code))), code >= 8);
  }
}

}  // namespace
}  // namespace braid
