// Coding by the rows of ops, and for each type how coded numbers lie in a block: what `keep` of
// gguf_blocks.cc takes apart.
#include "model/writing/gguf_encode.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "ops/grouped/grouped_format.h"
#include "ops/weight_format.h"
#include "tensor/dtype.h"

namespace braid {
namespace {

int At(const std::byte* bytes, int i) { return static_cast<int>(bytes[i]); }
std::byte ByteOf(int value) { return static_cast<std::byte>(value & 255); }

// 32 codes: the first 16 in the low halves, the others in the high ones.
void PutPairs(const std::byte* codes, std::byte* to) {
  for (int i = 0; i < 16; ++i) to[i] = ByteOf((At(codes, i) & 15) | (At(codes, i + 16) & 15) << 4);
}
void PutFifthBits(const std::byte* codes, std::byte* to) {
  std::fill_n(to, 4, std::byte{0});
  for (int i = 0; i < 32; ++i) to[i / 8] |= ByteOf((At(codes, i) >> 4 & 1) << i % 8);
}

// Words of eight codes of four bits, the first in the lowest ones.
void PackQ4_0(const GgufCoded& coded, std::byte* block) {
  std::memcpy(block, coded.numbers, 2);
  for (int i = 0; i < 16; ++i) {
    const auto code = [&](int c) { return At(coded.codes, c / 2) >> c % 2 * 4 & 15; };
    block[2 + i] = ByteOf(code(i) | code(i + 16) << 4);
  }
}
void PackQ8_0(const GgufCoded& coded, std::byte* block) {
  std::memcpy(block, coded.numbers, 2);
  std::memcpy(block + 2, coded.codes, 32);
}
template <int kScaleBytes>
void PackTable(const GgufCoded& coded, std::byte* block) {
  std::memcpy(block, coded.numbers, kScaleBytes);
  PutPairs(coded.codes, block + kScaleBytes);
}
void PackQ5_0(const GgufCoded& coded, std::byte* block) {
  std::memcpy(block, coded.numbers, 2);
  PutFifthBits(coded.codes, block + 2);
  PutPairs(coded.codes, block + 6);
}
// Files add the minimum that the engine subtracts.
template <bool kFive>
void PackWithMinimum(const GgufCoded& coded, std::byte* block) {
  std::memcpy(block, coded.numbers, 4);
  block[3] ^= std::byte{0x80};
  if constexpr (kFive) PutFifthBits(coded.codes, block + 4);
  PutPairs(coded.codes, block + (kFive ? 8 : 4));
}

// A scale and a minimum of six bits for each of eight groups.
void PutSixBits(const std::byte* scales, const std::byte* minima, std::byte* to) {
  for (int g = 0; g < 4; ++g) {
    to[g] = ByteOf(At(scales, g) | At(scales, g + 4) >> 4 << 6);
    to[g + 4] = ByteOf(At(minima, g) | At(minima, g + 4) >> 4 << 6);
    to[g + 8] = ByteOf((At(scales, g + 4) & 15) | (At(minima, g + 4) & 15) << 4);
  }
}
// Two groups of 32 share 32 bytes.
void PutHalves(const std::byte* codes, std::byte* to) {
  for (int g = 0; g < 8; g += 2, codes += 64, to += 32) {
    for (int i = 0; i < 32; ++i) to[i] = ByteOf((At(codes, i) & 15) | At(codes, i + 32) << 4);
  }
}
void PutGroups(const GgufCoded& coded, std::byte* block) {
  std::memcpy(block, coded.numbers, 2);
  std::memcpy(block + 2, coded.numbers + 10, 2);
  PutSixBits(coded.numbers + 2, coded.numbers + 12, block + 4);
}
void PackQ4_K(const GgufCoded& coded, std::byte* block) {
  PutGroups(coded, block);
  PutHalves(coded.codes, block + 16);
}
void PackQ5_K(const GgufCoded& coded, std::byte* block) {
  PutGroups(coded, block);
  for (int i = 0; i < 32; ++i) {
    int fifth = 0;
    for (int g = 0; g < 8; ++g) fifth |= (At(coded.codes, 32 * g + i) >> 4 & 1) << g;
    block[16 + i] = ByteOf(fifth);
  }
  PutHalves(coded.codes, block + 48);
}
void PackQ6_K(const GgufCoded& coded, std::byte* block) {
  for (int half = 0; half < 2; ++half) {
    const std::byte* codes = coded.codes + 128 * half;
    for (int i = 0; i < 64; ++i) {
      block[64 * half + i] = ByteOf((At(codes, i) & 15) | (At(codes, i + 64) & 15) << 4);
    }
    for (int i = 0; i < 32; ++i) {
      int high = 0;
      for (int q = 0; q < 4; ++q) high |= (At(codes, 32 * q + i) >> 4 & 3) << 2 * q;
      block[128 + 32 * half + i] = ByteOf(high);
    }
  }
  std::memcpy(block + 192, coded.numbers + 2, 16);
  std::memcpy(block + 208, coded.numbers, 2);
}

// Codes of two bits: four runs of 32 share 32 bytes.
void PutQuarters(const std::byte* codes, std::byte* to) {
  for (int half = 0; half < 2; ++half, codes += 128, to += 32) {
    for (int i = 0; i < 32; ++i) {
      int four = 0;
      for (int q = 0; q < 4; ++q) four |= (At(codes, 32 * q + i) & 3) << 2 * q;
      to[i] = ByteOf(four);
    }
  }
}
void PackQ3_K(const GgufCoded& coded, std::byte* block) {
  for (int i = 0; i < 32; ++i) {
    int third = 0;
    for (int q = 0; q < 8; ++q) third |= (At(coded.codes, 32 * q + i) >> 2 & 1) << q;
    block[i] = ByteOf(third);
  }
  PutQuarters(coded.codes, block + 32);
  const auto scale = [&](int g) { return static_cast<int8_t>(coded.numbers[2 + g]) + 32; };
  for (int g = 0; g < 8; ++g) block[96 + g] = ByteOf((scale(g) & 15) | (scale(g + 8) & 15) << 4);
  for (int g = 0; g < 4; ++g) {
    int high = 0;
    for (int q = 0; q < 4; ++q) high |= scale(4 * q + g) >> 4 << 2 * q;
    block[104 + g] = ByteOf(high);
  }
  std::memcpy(block + 108, coded.numbers, 2);
}
void PackQ2_K(const GgufCoded& coded, std::byte* block) {
  for (int g = 0; g < 16; ++g) {
    block[g] = ByteOf(At(coded.numbers, 2 + g) | At(coded.numbers, 20 + g) << 4);
  }
  PutQuarters(coded.codes, block + 16);
  std::memcpy(block + 80, coded.numbers, 2);
  std::memcpy(block + 82, coded.numbers + 18, 2);
}
void PackIQ4_XS(const GgufCoded& coded, std::byte* block) {
  std::memcpy(block, coded.numbers, 2);
  const auto scale = [&](int g) { return static_cast<int8_t>(coded.numbers[2 + g]) + 32; };
  for (int half = 0; half < 2; ++half) {
    int high = 0;
    for (int g = 0; g < 4; ++g) high |= scale(4 * half + g) >> 4 << 2 * g;
    block[2 + half] = ByteOf(high);
  }
  for (int g = 0; g < 8; g += 2) {
    block[4 + g / 2] = ByteOf((scale(g) & 15) | (scale(g + 1) & 15) << 4);
  }
  for (int g = 0; g < 8; ++g) PutPairs(coded.codes + 32 * g, block + 8 + 16 * g);
}

// How a type is coded: `most` is the largest integer of its scales, 0 where blocks have none.
struct Row {
  std::string_view name;
  GgufPacker pack;
  int most = 0;
};
constexpr Row kRows[] = {
    {"Q4_0", PackQ4_0},         {"Q4_1", PackWithMinimum<false>},
    {"Q5_0", PackQ5_0},         {"Q5_1", PackWithMinimum<true>},
    {"Q8_0", PackQ8_0},         {"IQ4_NL", PackTable<2>},
    {"MXFP4", PackTable<1>},    {"Q2_K", PackQ2_K, 15},
    {"Q3_K", PackQ3_K, 31},     {"Q4_K", PackQ4_K, 63},
    {"Q5_K", PackQ5_K, 63},     {"Q6_K", PackQ6_K, 127},
    {"IQ4_XS", PackIQ4_XS, 31},
};

const Row* RowOf(const GgufType& type) {
  const Row* row = std::ranges::find(kRows, type.name, &Row::name);
  return row == std::end(kRows) ? nullptr : row;
}

// The format of the codes with one fp16 number for all of a block of 256.
ops::GroupedFormat InBlocks(ops::WeightFormat kept) {
  ops::GroupedFormat format = ops::GroupedFormatOf(kept);
  for (ops::SharedNumber& number : format.numbers) {
    if (number.type == ops::NumberType::kF16) number.columns = 256;
  }
  return format;
}

void EncodePlain(const GgufType& type, const float* x, int64_t columns, std::byte* out) {
  if (type.name == "F32") {
    std::memcpy(out, x, static_cast<size_t>(4 * columns));
    return;
  }
  CHECK(type.name == "BF16" || type.name == "F16", "{} cannot be written", type.name);
  for (int64_t c = 0; c < columns; ++c) {
    const uint16_t bits = type.name == "BF16" ? Bf16OfFloat(x[c]) : F16OfFloat(x[c]);
    std::memcpy(out + 2 * c, &bits, sizeof bits);
  }
}

}  // namespace

GgufPacker GgufPackerOf(const GgufType& type) {
  const Row* row = RowOf(type);
  return row ? row->pack : nullptr;
}

void EncodeGgufRow(const GgufType& type, const float* x, int64_t columns, std::byte* out) {
  const int64_t block = type.block_elements;
  if (block == 1) return EncodePlain(type, x, columns, out);
  const Row* row = RowOf(type);
  CHECK(row != nullptr && columns % block == 0, "rows of {} in {}", columns, type.name);
  std::optional<ops::GroupedFormat> grouped;
  if (row->most > 0) grouped = InBlocks(*type.kept);
  GgufCoded coded;
  for (int64_t c = 0; c < columns; c += block, out += type.block_bytes) {
    if (grouped) {
      ops::QuantiseGrouped(*grouped, row->most, x + c, block, {coded.codes, coded.numbers});
    } else {
      ops::QuantiseRow(*type.kept, x + c, block, coded.codes, coded.numbers);
    }
    row->pack(coded, out);
  }
}

}  // namespace braid
