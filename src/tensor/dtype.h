// Element types of tensors and of checkpoint files, and the scalar conversions that define them.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace braid {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kU8,
  kI32,
  kI64,
  kF8E4M3,
  kBool,
  kI16,
  kF8E8M0
};

constexpr int64_t SizeOf(DType type) {
  constexpr int64_t kSizes[] = {4, 2, 2, 8, 1, 1, 4, 8, 1, 1, 2, 1};
  return kSizes[static_cast<int>(type)];
}

constexpr std::string_view NameOf(DType type) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16",   "f64",  "i8",  "u8",
                                         "i32", "i64", "f8e4m3", "bool", "i16", "f8e8m0"};
  return kNames[static_cast<int>(type)];
}

inline float FloatOfBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest even; a NaN stays a NaN.
inline uint16_t Bf16OfFloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float RoundToBf16(float value) { return FloatOfBf16(Bf16OfFloat(value)); }

// IEEE binary16, subnormals and infinities included.
inline float FloatOfF16(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu;
  uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    float value = static_cast<float>(mantissa) * 0x1.0p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Rounds to nearest even; values that are too large become infinity.
inline uint16_t F16OfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Subnormal: adding a half lets the hardware round to multiples of 2^-24.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u;
  return static_cast<uint16_t>(sign | rounded >> 13);
}

// OCP 8-bit floats: 4 bits of exponent and 3 of mantissa, no infinities (0x7f, 0xff: NaN).
inline float FloatOfE4M3(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t exponent = (bits >> 3) & 0xfu, mantissa = bits & 0x7u;
  if ((bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1.0p-9f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

// Rounds to nearest even; values beyond 448 become 448, a NaN stays a NaN.
inline uint8_t E4M3OfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  const int32_t normal = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3);
  // A multiple of 2^-9, rounded by the addition.
  const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
  const int32_t subnormal = std::bit_cast<int32_t>(shifted) - 0x46800000;
  int32_t code = magnitude < 0x3c800000 ? subnormal : normal;  // 2^-6
  code = magnitude < 0x43e00000 ? code : 0x7e;                 // 448
  code = magnitude > 0x7f800000 ? 0x7f : code;
  return static_cast<uint8_t>(static_cast<uint32_t>(code) | (bits >> 24 & 0x80u));
}

// A scale of 8 bits: 2^(bits - 127), 0xff: NaN.
inline float FloatOfE8M0(uint8_t bits) {
  if (bits == 0xff) return std::bit_cast<float>(0x7fc00000u);
  if (bits == 0) return 0x1.0p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 23);
}

// 4-bit floats, one in the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
inline float FloatOfE2M1(uint8_t bits) {
  constexpr float kValues[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float value = kValues[bits & 7u];
  return bits & 8u ? -value : value;
}

}  // namespace braid
