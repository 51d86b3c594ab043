// Decoders of blocks. Integers of a block are exact in fp32; scales are fp16, read exactly.
#include "model/checkpoint/formats/gguf_blocks.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "model/checkpoint/formats/gguf_iq.h"
#include "tensor/dtype.h"

namespace braid {
namespace {

uint8_t Byte(const std::byte* at) { return static_cast<uint8_t>(*at); }

float HalfAt(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return FloatOfF16(bits);
}

void DecodeF32(const std::byte* block, float* out) { std::memcpy(out, block, 4); }
void DecodeF16(const std::byte* block, float* out) { *out = HalfAt(block); }
void DecodeBf16(const std::byte* block, float* out) {
  uint16_t bits;
  std::memcpy(&bits, block, 2);
  *out = FloatOfBf16(bits);
}

// The first 16 codes stand in the low halves, each plus 8.
void DecodeQ4_0(const std::byte* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 16; ++i) {
    const int pair = Byte(block + 2 + i);
    out[i] = static_cast<float>((pair & 15) - 8) * d;
    out[i + 16] = static_cast<float>((pair >> 4) - 8) * d;
  }
}

void DecodeQ8_0(const std::byte* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

// Of 32 codes the low four bits as in Q4_0; the fifth of code i is bit i of a word.
int FifthBitAt(const std::byte* word, int i) { return Byte(word + i / 8) >> i % 8 & 1; }
int Code32At(const std::byte* pairs, const std::byte* fifth, int i) {
  const int nibble = Byte(pairs + i % 16) >> (i < 16 ? 0 : 4) & 15;
  return fifth ? nibble | FifthBitAt(fifth, i) << 4 : nibble;
}
// Two fp16 numbers, perhaps a word of fifth bits, and pairs: d * code + m.
template <bool kFive>
void DecodeWithMinimum(const std::byte* block, float* out) {
  const float d = HalfAt(block), m = HalfAt(block + 2);
  const std::byte* fifth = kFive ? block + 4 : nullptr;
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(Code32At(block + (kFive ? 8 : 4), fifth, i)) + m;
  }
}
void DecodeQ5_0(const std::byte* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(Code32At(block + 6, block + 2, i) - 16);
  }
}

// Blocks of 8 groups of 32 begin with two fp16 numbers and, in 12 bytes, a scale and a minimum of
// six bits for each group. A weight is step * code - base.
struct Packed {
  int scale, minimum;
};
Packed PackedAt(const std::byte* packed, int group) {
  if (group < 4) return {Byte(packed + group) & 63, Byte(packed + 4 + group) & 63};
  const int low = Byte(packed + 4 + group);
  const int scale = (low & 15) | Byte(packed + group - 4) >> 6 << 4;
  return {scale, low >> 4 | Byte(packed + group) >> 6 << 4};
}
struct Group {
  float step, base;
};
Group GroupAt(const std::byte* block, int group) {
  const auto [scale, minimum] = PackedAt(block + 4, group);
  return {HalfAt(block) * static_cast<float>(scale),
          HalfAt(block + 2) * static_cast<float>(minimum)};
}
// The low four bits of code i of a group: two groups share 32 bytes.
int NibbleAt(const std::byte* codes, int group, int i) {
  return Byte(codes + group / 2 * 32 + i) >> (group % 2 * 4) & 15;
}

void DecodeQ4_K(const std::byte* block, float* out) {
  for (int group = 0; group < 8; ++group) {
    const auto [step, base] = GroupAt(block, group);
    for (int i = 0; i < 32; ++i) {
      *out++ = step * static_cast<float>(NibbleAt(block + 16, group, i)) - base;
    }
  }
}

// The fifth bits of a group stand in one bit of 32 bytes.
int Q5_KAt(const std::byte* block, int group, int i) {
  return NibbleAt(block + 48, group, i) | (Byte(block + 16 + i) >> group & 1) << 4;
}
void DecodeQ5_K(const std::byte* block, float* out) {
  for (int group = 0; group < 8; ++group) {
    const auto [step, base] = GroupAt(block, group);
    for (int i = 0; i < 32; ++i) {
      *out++ = step * static_cast<float>(Q5_KAt(block, group, i)) - base;
    }
  }
}

// 16 groups of 16 with scales of six bits, stored plus 32: the low four bits in eight bytes, the
// others in four. Codes are stored plus 4, the third bits apart.
int Q3_KScaleAt(const std::byte* block, int group) {
  const std::byte* packed = block + 96;
  const int low = Byte(packed + group % 8) >> (group < 8 ? 0 : 4) & 15;
  return (low | (Byte(packed + 8 + group % 4) >> (group / 4 * 2) & 3) << 4) - 32;
}
int Q3_KAt(const std::byte* block, int i) {
  const int low = Byte(block + 32 + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
  return low | (Byte(block + i % 32) >> (i / 32) & 1) << 2;
}
void DecodeQ3_K(const std::byte* block, float* out) {
  const float d = HalfAt(block + 108);
  for (int i = 0; i < 256; ++i) {
    out[i] = d * static_cast<float>(Q3_KScaleAt(block, i / 16)) *
             static_cast<float>(Q3_KAt(block, i) - 4);
  }
}

// 16 groups of 16, each with four bits of a scale and four of a minimum; codes of two bits.
int Q2_KAt(const std::byte* block, int i) {
  return Byte(block + 16 + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
}
void DecodeQ2_K(const std::byte* block, float* out) {
  const float d = HalfAt(block + 80), m = HalfAt(block + 82);
  for (int i = 0; i < 256; ++i) {
    const float step = d * static_cast<float>(Byte(block + i / 16) & 15);
    const float base = m * static_cast<float>(Byte(block + i / 16) >> 4);
    out[i] = step * static_cast<float>(Q2_KAt(block, i)) - base;
  }
}

// Codes that stand for values of a table, in the order of Q4_0. IQ4_XS has eight such blocks with
// a scale of six bits each, stored plus 32: four bits in four bytes, two in a word before them.
constexpr int kIq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kFp4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
void DecodeTable(const int (&table)[16], const std::byte* pairs, float scale, float* out) {
  for (int i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(table[Code32At(pairs, nullptr, i)]);
  }
}
void DecodeIQ4_NL(const std::byte* block, float* out) {
  DecodeTable(kIq4, block + 2, HalfAt(block), out);
}
int IQ4_XSScaleAt(const std::byte* block, int group) {
  const int low = Byte(block + 4 + group / 2) >> (group % 2 * 4) & 15;
  return (low | (Byte(block + 2 + group / 4) >> (group % 4 * 2) & 3) << 4) - 32;
}
void DecodeIQ4_XS(const std::byte* block, float* out) {
  const float d = HalfAt(block);
  for (int group = 0; group < 8; ++group) {
    DecodeTable(kIq4, block + 8 + group * 16, d * static_cast<float>(IQ4_XSScaleAt(block, group)),
                out + group * 32);
  }
}
// The scale is a power of two for doubled values; 255 is not a number, as the format's standard has
// it (ggml reads 2^127 there).
void DecodeMXFP4(const std::byte* block, float* out) {
  DecodeTable(kFp4, block + 1, FloatOfE8M0(Byte(block)) * 0.5f, out);
}

// Code i of a half of a block: four low and two high bits of it lie apart.
int Q6_KAt(const std::byte* block, int half, int i) {
  const int quarter = i / 32, l = i % 32;
  const int pair = Byte(block + 64 * half + l + 32 * (quarter % 2));
  const int high = Byte(block + 128 + 32 * half + l) >> (2 * quarter) & 3;
  return (pair >> (quarter < 2 ? 0 : 4) & 15) | high << 4;
}
// 16 groups of 16; codes are stored plus 32.
void DecodeQ6_K(const std::byte* block, float* out) {
  const float d = HalfAt(block + 208);
  for (int i = 0; i < 256; ++i) {
    const auto scale = static_cast<float>(static_cast<int8_t>(block[192 + i / 16]));
    out[i] = d * scale * static_cast<float>(Q6_KAt(block, i / 128, i % 128) - 32);
  }
}

void KeepQ4_0(const std::byte* block, std::byte* words, std::byte* scale) {
  std::memcpy(scale, block, 2);
  uint64_t pairs[2];
  std::memcpy(pairs, block + 2, sizeof pairs);
  const uint32_t four[] = {ops::WordOfHalves(pairs[0]), ops::WordOfHalves(pairs[1]),
                           ops::WordOfHalves(pairs[0] >> 4), ops::WordOfHalves(pairs[1] >> 4)};
  std::memcpy(words, four, sizeof four);
}

void KeepQ8_0(const std::byte* block, std::byte* codes, std::byte* scale) {
  std::memcpy(scale, block, 2);
  std::memcpy(codes, block + 2, 32);
}

// What the columns of each half of a block share: its fp16 number, four integers of six bits, and
// the same for the bases.
void KeepGroups(const std::byte* block, std::byte* scales) {
  for (int half = 0; half < 2; ++half, scales += 12) {
    std::memcpy(scales, block, 2);
    std::memcpy(scales + 6, block + 2, 2);
    for (int i = 0; i < 4; ++i) {
      const auto [scale, minimum] = PackedAt(block + 4, 4 * half + i);
      scales[2 + i] = static_cast<std::byte>(scale);
      scales[8 + i] = static_cast<std::byte>(minimum);
    }
  }
}

void KeepQ4_K(const std::byte* block, std::byte* codes, std::byte* scales) {
  KeepGroups(block, scales);
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i) {
      *codes++ = static_cast<std::byte>(NibbleAt(block + 16, group, i));
    }
  }
}

void KeepQ5_K(const std::byte* block, std::byte* codes, std::byte* scales) {
  KeepGroups(block, scales);
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i) *codes++ = static_cast<std::byte>(Q5_KAt(block, group, i));
  }
}

// Each half of a block with its fp16 number and eight scales.
void KeepQ6_K(const std::byte* block, std::byte* codes, std::byte* scales) {
  for (int half = 0; half < 2; ++half, scales += 10) {
    std::memcpy(scales, block + 208, 2);
    std::memcpy(scales + 2, block + 192 + 8 * half, 8);
    for (int i = 0; i < 128; ++i) *codes++ = static_cast<std::byte>(Q6_KAt(block, half, i));
  }
}

void KeepQ3_K(const std::byte* block, std::byte* codes, std::byte* scales) {
  for (int half = 0; half < 2; ++half, scales += 10) {
    std::memcpy(scales, block + 108, 2);
    for (int g = 0; g < 8; ++g) {
      scales[2 + g] = static_cast<std::byte>(Q3_KScaleAt(block, 8 * half + g));
    }
  }
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<std::byte>(Q3_KAt(block, i));
}

void KeepQ2_K(const std::byte* block, std::byte* codes, std::byte* scales) {
  for (int half = 0; half < 2; ++half, scales += 20) {
    std::memcpy(scales, block + 80, 2);
    std::memcpy(scales + 10, block + 82, 2);
    for (int g = 0; g < 8; ++g) {
      const uint8_t both = Byte(block + 8 * half + g);
      scales[2 + g] = static_cast<std::byte>(both & 15);
      scales[12 + g] = static_cast<std::byte>(both >> 4);
    }
  }
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<std::byte>(Q2_KAt(block, i));
}

void KeepPairs(const std::byte* pairs, std::byte* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::byte>(Code32At(pairs, nullptr, i));
}
// A scale of so many bytes, and pairs.
template <int kScaleBytes>
void KeepTable(const std::byte* block, std::byte* codes, std::byte* scale) {
  std::memcpy(scale, block, kScaleBytes);
  KeepPairs(block + kScaleBytes, codes);
}
void KeepIQ4_XS(const std::byte* block, std::byte* codes, std::byte* scales) {
  for (int group = 0; group < 8; ++group) {
    std::byte* of_half = scales + group / 4 * 6;
    if (group % 4 == 0) std::memcpy(of_half, block, 2);
    of_half[2 + group % 4] = static_cast<std::byte>(IQ4_XSScaleAt(block, group));
    KeepPairs(block + 8 + group * 16, codes + group * 32);
  }
}

// What is added is a base with the other sign.
template <bool kFive>
void KeepWithMinimum(const std::byte* block, std::byte* codes, std::byte* scales) {
  std::memcpy(scales, block, 4);
  scales[3] ^= std::byte{0x80};
  const std::byte* fifth = kFive ? block + 4 : nullptr;
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<std::byte>(Code32At(block + (kFive ? 8 : 4), fifth, i));
  }
}
void KeepQ5_0(const std::byte* block, std::byte* codes, std::byte* scale) {
  std::memcpy(scale, block, 2);
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<std::byte>(Code32At(block + 6, block + 2, i));
  }
}

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, DecodeF32},
    {1, "F16", 1, 2, DecodeF16},
    {30, "BF16", 1, 2, DecodeBf16},
    {2, "Q4_0", 32, 18, DecodeQ4_0, ops::WeightFormat::kI4, KeepQ4_0},
    {8, "Q8_0", 32, 34, DecodeQ8_0, ops::WeightFormat::kQ8_0, KeepQ8_0},
    {12, "Q4_K", 256, 144, DecodeQ4_K, ops::WeightFormat::kQ4K, KeepQ4_K},
    {13, "Q5_K", 256, 176, DecodeQ5_K, ops::WeightFormat::kQ5K, KeepQ5_K},
    {14, "Q6_K", 256, 210, DecodeQ6_K, ops::WeightFormat::kQ6K, KeepQ6_K},
    {3, "Q4_1", 32, 20, DecodeWithMinimum<false>, ops::WeightFormat::kQ4_1, KeepWithMinimum<false>},
    {6, "Q5_0", 32, 22, DecodeQ5_0, ops::WeightFormat::kQ5_0, KeepQ5_0},
    {7, "Q5_1", 32, 24, DecodeWithMinimum<true>, ops::WeightFormat::kQ5_1, KeepWithMinimum<true>},
    {11, "Q3_K", 256, 110, DecodeQ3_K, ops::WeightFormat::kQ3K, KeepQ3_K},
    {10, "Q2_K", 256, 84, DecodeQ2_K, ops::WeightFormat::kQ2K, KeepQ2_K},
    {20, "IQ4_NL", 32, 18, DecodeIQ4_NL, ops::WeightFormat::kIQ4NL, KeepTable<2>},
    {23, "IQ4_XS", 256, 136, DecodeIQ4_XS, ops::WeightFormat::kIQ4XS, KeepIQ4_XS},
    {39, "MXFP4", 32, 17, DecodeMXFP4, ops::WeightFormat::kMxfp4, KeepTable<1>},
};

}  // namespace

std::span<const GgufType> GgufTypes() {
  static const std::vector<GgufType> all = [] {
    std::vector<GgufType> types(std::begin(kTypes), std::end(kTypes));
    types.insert(types.end(), GgufIqTypes().begin(), GgufIqTypes().end());
    return types;
  }();
  return all;
}

const GgufType* FindGgufType(uint32_t id) {
  const std::span<const GgufType> types = GgufTypes();
  const auto at = std::ranges::find(types, id, &GgufType::id);
  return at == types.end() ? nullptr : &*at;
}

std::string GgufTypeNames() {
  std::string names;
  for (const GgufType& type : GgufTypes()) {
    names += names.empty() ? "" : ", ";
    names += type.name;
  }
  return names;
}

}  // namespace braid
