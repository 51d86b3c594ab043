// A block of 256 is read into codes of the memory format that holds it, with an integer scale per
// group, and an fp16 number. Values are made of these: their products are exact in fp32, so the
// bits are those of ggml, which multiplies in another order.
#include "model/checkpoint/formats/gguf_iq.h"

#include <bit>
#include <cstring>

#include "model/checkpoint/formats/gguf_grids.h"
#include "ops/grouped/grouped_format.h"
#include "tensor/dtype.h"

namespace braid {
namespace {

constexpr int kElements = 256;

struct Block {
  uint16_t d = 0;
  uint8_t scales[16] = {};  // of groups of 16 or 32
  uint8_t codes[kElements] = {};
};

uint8_t Byte(const std::byte* at) { return static_cast<uint8_t>(*at); }
uint16_t HalfWord(const std::byte* at) {
  uint16_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
uint32_t Word(const std::byte* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
int NibbleAt(const std::byte* at, int i) { return Byte(at + i / 2) >> (i % 2 * 4) & 15; }

// Seven signs; the eighth makes their number even.
int SignsOf(uint32_t seven) {
  return static_cast<int>(seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7);
}

// Eight codes of 2 bits with a sign above them, bit i of `signs` that of code i.
void PutEight(uint16_t entry, int signs, uint8_t* codes) {
  for (int i = 0; i < 8; ++i) {
    codes[i] = static_cast<uint8_t>((entry >> (2 * i) & 3) | (signs >> i & 1) << 2);
  }
}
// The same of 3 bits, from two entries of four.
void PutFours(uint16_t first, uint16_t second, int signs, uint8_t* codes) {
  for (int i = 0; i < 8; ++i) {
    const int entry = i < 4 ? first : second;
    codes[i] = static_cast<uint8_t>((entry >> (4 * (i % 4)) & 7) | (signs >> i & 1) << 3);
  }
}

// Per 32: four numbers of entries, then a word of four times seven signs and a scale.
void ReadIq2Xxs(const std::byte* block, Block& out) {
  for (int group = 0; group < 8; ++group) {
    const std::byte* at = block + 2 + 8 * group;
    const uint32_t word = Word(at + 4);
    for (int i = 0; i < 4; ++i) {
      PutEight(kIq2XxsGrid[Byte(at + i)], SignsOf(word >> (7 * i) & 127),
               out.codes + 32 * group + 8 * i);
    }
    out.scales[2 * group] = out.scales[2 * group + 1] = static_cast<uint8_t>(2 * (word >> 28) + 1);
  }
}

// Per 8 a word of an entry's number and seven signs; scales per 16 behind them.
void ReadIq2Xs(const std::byte* block, Block& out) {
  for (int i = 0; i < 32; ++i) {
    const uint16_t word = HalfWord(block + 2 + 2 * i);
    PutEight(kIq2XsGrid[word & 511], SignsOf(word >> 9), out.codes + 8 * i);
  }
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = static_cast<uint8_t>(2 * NibbleAt(block + 66, g) + 1);
  }
}

// The low bytes of the entries' numbers, signs, the numbers' high bits, scales per 16.
void ReadIq2S(const std::byte* block, Block& out) {
  for (int i = 0; i < 32; ++i) {
    const int high = Byte(block + 66 + i / 4) >> (2 * (i % 4)) & 3;
    PutEight(kIq2SGrid[Byte(block + 2 + i) | high << 8], Byte(block + 34 + i), out.codes + 8 * i);
  }
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = static_cast<uint8_t>(2 * NibbleAt(block + 74, g) + 1);
  }
}

// Entries of four; per 32 a word of signs and a scale, which is doubled: an eighth of it counts.
void ReadIq3Xxs(const std::byte* block, Block& out) {
  for (int group = 0; group < 8; ++group) {
    const uint32_t word = Word(block + 66 + 4 * group);
    for (int i = 0; i < 4; ++i) {
      const std::byte* at = block + 2 + 8 * group + 2 * i;
      PutFours(kIq3XxsGrid[Byte(at)], kIq3XxsGrid[Byte(at + 1)], SignsOf(word >> (7 * i) & 127),
               out.codes + 32 * group + 8 * i);
    }
    out.scales[group] = static_cast<uint8_t>(4 * (word >> 28) + 2);
  }
}

// The ninth bits of the numbers in eight bytes, then signs and scales.
void ReadIq3S(const std::byte* block, Block& out) {
  const auto entry = [&](int i) {
    const int high = Byte(block + 66 + i / 8) >> (i % 8) & 1;
    return kIq3SGrid[Byte(block + 2 + i) | high << 8];
  };
  for (int i = 0; i < 32; ++i) {
    PutFours(entry(2 * i), entry(2 * i + 1), Byte(block + 74 + i), out.codes + 8 * i);
  }
  for (int g = 0; g < 8; ++g) {
    out.scales[g] = static_cast<uint8_t>(2 * NibbleAt(block + 106, g) + 1);
  }
}

// Eight values -1, 0, 1; an eighth is added to all of them, or subtracted.
void PutEighths(uint16_t entry, bool subtract, uint8_t* codes) {
  PutEight(entry, subtract ? 255 : 0, codes);
}
// Per 32 a word of the numbers' high bits, a scale and the sign of the eighth.
void ReadIq1S(const std::byte* block, Block& out) {
  for (int group = 0; group < 8; ++group) {
    const uint16_t word = HalfWord(block + 34 + 2 * group);
    for (int i = 0; i < 4; ++i) {
      const int number = Byte(block + 2 + 4 * group + i) | (word >> (3 * i) & 7) << 8;
      PutEighths(kIq1SGrid[number], word >> 15 != 0, out.codes + 32 * group + 8 * i);
    }
    out.scales[2 * group] = out.scales[2 * group + 1] =
        static_cast<uint8_t>(2 * (word >> 12 & 7) + 1);
  }
}
// Per 8 the high bits of a number and the sign of the eighth; four words of four scales of 3 bits
// each, with four bits of the fp16 number above them.
void ReadIq1M(const std::byte* block, Block& out) {
  for (int i = 0; i < 32; ++i) {
    const int high = NibbleAt(block + 32, i);
    PutEighths(kIq1SGrid[Byte(block + i) | (high & 7) << 8], high >= 8, out.codes + 8 * i);
  }
  for (int w = 0; w < 4; ++w) {
    const uint16_t word = HalfWord(block + 48 + 2 * w);
    out.d = static_cast<uint16_t>(out.d | word >> 12 << (4 * w));
    for (int i = 0; i < 4; ++i) {
      out.scales[4 * w + i] = static_cast<uint8_t>(2 * (word >> (3 * i) & 7) + 1);
    }
  }
}

// How a type's blocks are read, and the format that holds them.
template <void (*kRead)(const std::byte*, Block&), ops::WeightFormat kFormat, bool kFirst>
struct Kind {
  static Block Read(const std::byte* bytes) {
    Block block;
    if (kFirst) block.d = HalfWord(bytes);
    kRead(bytes, block);
    return block;
  }
  static const ops::GroupedFormat& Row() {
    static const ops::GroupedFormat& row = ops::GroupedFormatOf(kFormat);
    return row;
  }
  static void Decode(const std::byte* bytes, float* out) {
    const Block block = Read(bytes);
    const ops::GroupedFormat& row = Row();
    const float d =
        ops::NumberOf(reinterpret_cast<const std::byte*>(&block.d), row.numbers[0].type);
    for (int i = 0; i < kElements; ++i) {
      const float scale = d * static_cast<float>(block.scales[i / row.group]);
      out[i] = static_cast<float>(row.Value(block.codes[i])) * scale;
    }
  }
  // Each half of a block with the fp16 number and its scales.
  static void Keep(const std::byte* bytes, std::byte* codes, std::byte* scales) {
    const Block block = Read(bytes);
    const int64_t groups = kElements / 2 / Row().group;
    for (int half = 0; half < 2; ++half, scales += 2 + groups) {
      std::memcpy(scales, &block.d, 2);
      std::memcpy(scales + 2, block.scales + half * groups, static_cast<size_t>(groups));
    }
    std::memcpy(codes, block.codes, sizeof block.codes);
  }
};

template <void (*kRead)(const std::byte*, Block&), ops::WeightFormat kFormat, bool kFirst = true>
constexpr GgufType TypeOf(uint32_t id, std::string_view name, int64_t bytes) {
  using Of = Kind<kRead, kFormat, kFirst>;
  return {id, name, kElements, bytes, Of::Decode, kFormat, Of::Keep};
}

constexpr GgufType kTypes[] = {
    TypeOf<ReadIq2Xxs, ops::WeightFormat::kIQ2>(16, "IQ2_XXS", 66),
    TypeOf<ReadIq2Xs, ops::WeightFormat::kIQ2>(17, "IQ2_XS", 74),
    TypeOf<ReadIq2S, ops::WeightFormat::kIQ2>(22, "IQ2_S", 82),
    TypeOf<ReadIq3Xxs, ops::WeightFormat::kIQ3XXS>(18, "IQ3_XXS", 98),
    TypeOf<ReadIq3S, ops::WeightFormat::kIQ3S>(21, "IQ3_S", 110),
    TypeOf<ReadIq1S, ops::WeightFormat::kIQ1>(19, "IQ1_S", 50),
    TypeOf<ReadIq1M, ops::WeightFormat::kIQ1, false>(29, "IQ1_M", 56),
};

}  // namespace

std::span<const GgufType> GgufIqTypes() { return kTypes; }

}  // namespace braid
