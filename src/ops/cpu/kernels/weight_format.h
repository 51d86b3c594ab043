// The names of the formats of weights in memory, and those formats whose codes are integers of few
// bits in groups, as data: kernels (kernels/grouped.h), packing and reading derive from a row.
// Kernels may include no other header of ops; everybody else includes ops/weight_format.h.
#pragma once

#include <cstdint>

namespace braid::ops {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8,
  kI8,
  kQ8_0,
  kQ8KM,
  kQ6KM,
  kQ6K,
  kQ5K,
  kQ5_1,
  kQ5_0,
  kQ4K,
  kQ4_1,
  kI4Z32,
  kI4Z,
  kIQ4XS,
  kIQ4NL,
  kI4,
  kNvfp4,
  kNvfp4D,
  kMxfp4,
  kIQ3XXS,
  kIQ3S,
  kQ3K,
  kQ2K,
  kIQ2,
  kIQ1
};

// A number that `columns` columns of a row share; 0: all of them. A kF16By8 is an eighth of an fp16
// number; a kF8 is an e4m3 number; a kE8M0 of e is 2^(e - 128), half of what MX formats say,
// because their codes are stored doubled; a kFirst is the first number again and takes no bytes.
enum class NumberType : uint8_t { kNone, kF32, kF16, kF16By8, kU8, kI8, kF8, kE8M0, kFirst };
struct SharedNumber {
  NumberType type = NumberType::kNone;
  int64_t columns = 0;

  constexpr int64_t bytes() const {
    constexpr int64_t kSizes[] = {0, 4, 2, 2, 1, 1, 1, 1, 0};
    return kSizes[static_cast<int>(type)];
  }
};
// A weight is code * scale - base: the scale is the product of the first two numbers, the base that
// of the last two; those that are absent are 1, and a base without numbers is 0.
inline constexpr int kNumbers = 4;
// The number that number i is.
constexpr int StoredNumber(const SharedNumber* numbers, int i) {
  return numbers[i].type == NumberType::kFirst ? 0 : i;
}

// What codes of at most four bits stand for. Codes that stand for themselves have only zeros here.
struct CodeValues {
  uint8_t of[16];
};

// A block of a panel has the numbers of its columns, [columns][16 outputs] each and one after the
// other, filled up to a line, then `bits` lines of codes per 32 columns (GroupedLines).
struct GroupedFormat {
  WeightFormat format;
  int bits;       // of a code, 2 to 6, or 8
  int64_t block;  // columns: 64, 128 or 256
  int64_t group;  // columns whose products make an exact sum: 16 or 32
  int centre;     // is subtracted from codes
  SharedNumber numbers[kNumbers];
  CodeValues values = {};  // minus the centre
  bool divides = false;  // the scale is the second number divided by the first

  constexpr int Value(int code) const { return (has_values() ? values.of[code] : code) - centre; }
  // The code of columns behind the last one, whose scales are zero too.
  constexpr int Padding() const { return has_values() ? 0 : centre; }
  constexpr int Least() const { return Extreme(-1); }
  constexpr int Most() const { return Extreme(1); }
  constexpr bool has_base() const { return numbers[2].type != NumberType::kNone; }
  constexpr bool has_values() const { return values.of[0] != values.of[1]; }
  // Where number i begins in a block; i = kNumbers: their bytes.
  constexpr int64_t NumberOffset(int i) const {
    int64_t offset = 0;
    for (int j = 0; j < i; ++j) {
      if (numbers[j].columns > 0) offset += block / numbers[j].columns * 16 * numbers[j].bytes();
    }
    return offset;
  }
  // The largest value for sign 1, the least for -1.
  constexpr int Extreme(int sign) const {
    int found = Value(0);
    for (int code = 1; code < 1 << bits; ++code) {
      if (sign * Value(code) > sign * found) found = Value(code);
    }
    return found;
  }
  constexpr int64_t CodesOffset() const { return (NumberOffset(kNumbers) + 63) / 64 * 64; }
  constexpr int64_t BlockBytes() const { return CodesOffset() + block * 2 * bits; }
};

// The K-quants of GGUF have an fp16 scale per 256 columns and integers per group. Half blocks stand
// for themselves, because the columns of some weights move by heads of 128.
inline constexpr SharedNumber kHalfOf128 = {NumberType::kF16, 128};
inline constexpr SharedNumber kByteOf32 = {NumberType::kU8, 32};
inline constexpr SharedNumber kSignedOf16 = {NumberType::kI8, 16};
inline constexpr SharedNumber kHalfOf32 = {NumberType::kF16, 32};
inline constexpr SharedNumber kFloatOf256 = {NumberType::kF32, 256};
inline constexpr SharedNumber kFp8Of16 = {NumberType::kF8, 16};
inline constexpr SharedNumber kEighthOf128 = {NumberType::kF16By8, 128};
inline constexpr SharedNumber kByteOf16 = {NumberType::kU8, 16};
inline constexpr SharedNumber kByteOf128 = {NumberType::kU8, 128};
// The values of IQ4 plus 127, and those of 4-bit floats, doubled, plus 12.
inline constexpr CodeValues kIq4Values = {{0,   23,  44,  62,  78,  92,  105, 117,
                                           128, 140, 152, 165, 180, 196, 216, 240}};
inline constexpr CodeValues kFp4Values = {{12, 13, 14, 15, 16, 18, 20, 24,  //
                                           12, 11, 10, 9,  8,  6,  4,  0}};
// Of types of few bits: magnitudes, then the same with the other sign, plus the largest. The fourth
// of IQ2 and of IQ1 does not occur; IQ1 has eighths above -1, 0 and 1, then eighths below.
inline constexpr CodeValues kIq3XxsValues = {{66, 74, 82, 90, 98, 106, 114, 124,
                                              58, 50, 42, 34, 26, 18,  10,  0}};
inline constexpr CodeValues kIq3SValues = {{16, 18, 20, 22, 24, 26, 28, 30,
                                            14, 12, 10, 8,  6,  4,  2,  0}};
inline constexpr CodeValues kIq2Values = {{51, 68, 86, 86, 35, 18, 0, 0}};
inline constexpr CodeValues kIq1Values = {{2, 10, 18, 18, 0, 8, 16, 16}};
inline constexpr GroupedFormat kGroupedFormats[] = {
    // Holds all in blocks of 256, where parts of one weight have several of them.
    {WeightFormat::kQ8KM, 8, 256, 16, 128, {kHalfOf128, kSignedOf16, kHalfOf128, kByteOf16}},
    // Holds the K-quants below.
    {WeightFormat::kQ6KM, 6, 256, 16, 32, {kHalfOf128, kSignedOf16, kHalfOf128, kByteOf16}},
    {WeightFormat::kQ6K, 6, 256, 16, 32, {kHalfOf128, kSignedOf16}},
    {WeightFormat::kQ5K, 5, 256, 32, 0, {kHalfOf128, kByteOf32, kHalfOf128, kByteOf32}},
    {WeightFormat::kQ4K, 4, 256, 32, 0, {kHalfOf128, kByteOf32, kHalfOf128, kByteOf32}},
    {WeightFormat::kQ5_1, 5, 64, 32, 0, {kHalfOf32, {}, kHalfOf32}},
    {WeightFormat::kQ5_0, 5, 64, 32, 16, {kHalfOf32}},
    {WeightFormat::kQ4_1, 4, 64, 32, 0, {kHalfOf32, {}, kHalfOf32}},
    // Integers with zero points: the base is the scale times the zero point.
    {WeightFormat::kI4Z32, 4, 128, 32, 0, {kHalfOf32, {}, {NumberType::kFirst, 32}, kByteOf32}},
    {WeightFormat::kI4Z, 4, 128, 32, 0, {kHalfOf128, {}, {NumberType::kFirst, 128}, kByteOf128}},
    {WeightFormat::kIQ4XS, 4, 256, 32, 127, {kHalfOf128, {NumberType::kI8, 32}}, kIq4Values},
    {WeightFormat::kIQ4NL, 4, 64, 32, 127, {kHalfOf32}, kIq4Values},
    {WeightFormat::kNvfp4, 4, 256, 16, 12, {kFloatOf256, kFp8Of16}, kFp4Values},
    {WeightFormat::kNvfp4D, 4, 256, 16, 12, {kFloatOf256, kFp8Of16}, kFp4Values, true},
    {WeightFormat::kMxfp4, 4, 64, 32, 12, {{NumberType::kE8M0, 32}}, kFp4Values},
    {WeightFormat::kIQ3XXS, 4, 256, 32, 62, {kEighthOf128, kByteOf32}, kIq3XxsValues},
    {WeightFormat::kIQ3S, 4, 256, 32, 15, {kHalfOf128, kByteOf32}, kIq3SValues},
    {WeightFormat::kQ3K, 3, 256, 16, 4, {kHalfOf128, kSignedOf16}},
    {WeightFormat::kQ2K, 2, 256, 16, 0, {kHalfOf128, kByteOf16, kHalfOf128, kByteOf16}},
    {WeightFormat::kIQ2, 3, 256, 16, 43, {kEighthOf128, kByteOf16}, kIq2Values},
    {WeightFormat::kIQ1, 3, 256, 16, 9, {kEighthOf128, kByteOf16}, kIq1Values},
};
inline constexpr int kGroupedCount = sizeof(kGroupedFormats) / sizeof(GroupedFormat);

// The lines of 32 columns: codes are cut into planes of 8, 4, 2 and 1 bits, as the bits of `bits`
// say, the lowest bits of a code in the widest plane. Word t of an output are its codes 4 t to 4 t
// + 3, a byte each; a line of a plane of b bits has 8 / b words of every output, [16][4] bytes, the
// first in the lowest bits.
struct GroupedLines {
  int bits;

  constexpr bool Has(int plane) const { return (bits & plane) != 0; }
  // The lowest bit of the plane in a code, and its first line.
  constexpr int Shift(int plane) const { return plane >= 4 ? 0 : plane == 2 ? bits & 4 : bits & 6; }
  constexpr int Line(int plane) const { return Shift(plane); }
};

}  // namespace braid::ops
