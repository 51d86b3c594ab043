// Shared by the decoders of integers of 4 and 8 bits: groups of columns with a scale each, and
// words of eight or four codes. Pure.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "base/math.h"
#include "model/checkpoint/formats/quantization.h"
#include "model/checkpoint/formats/storage_format.h"
#include "ops/weight_format.h"

namespace braid {

inline constexpr int64_t kPerWord = ops::kCodesPerWord;  // of four bits
inline constexpr DType kGroupScaleTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

inline int64_t GroupSize(const StoredWeight& w) {
  return w.quantization->group > 0 ? w.quantization->group : w.k;
}
inline int64_t GroupCount(const StoredWeight& w) { return CeilDiv(w.k, GroupSize(w)); }

// A byte for each of `count` codes, two of which share a byte, the first in its low half.
inline void KeepPairs(const std::byte* pairs, int64_t count, std::byte* codes) {
  for (int64_t c = 0; c < count; ++c) {
    codes[c] = c % 2 == 0 ? pairs[c / 2] & std::byte{15} : pairs[c / 2] >> 4;
  }
}

// Word i of a tensor of 32-bit words.
inline uint32_t WordAt(const TensorEntry& part, int64_t i) {
  uint32_t word;
  std::memcpy(&word, part.data + 4 * i, 4);
  return word;
}

// How words of a weight's codes are made: eight of four bits or four of eight, the first in the
// lowest bits. Shifts, because codes are looked at one by one.
struct CodeWords {
  int log2;  // of the codes of a word

  int64_t per_word() const { return int64_t{1} << log2; }
  int32_t middle() const { return log2 == 3 ? 8 : 128; }
  int64_t WordOf(int64_t code) const { return code >> log2; }
  int32_t CodeIn(uint32_t word, int64_t code) const {
    const int bits = 32 >> log2;
    return static_cast<int32_t>(word >> (bits * (code & (per_word() - 1))) & ((1u << bits) - 1));
  }
};

// The group of every column, from a tensor [k] of 32-bit numbers, or what is wrong with one.
std::string GroupIndexProblem(const StoredWeight& w, const TensorEntry& index);
inline int64_t GroupOf(const StoredWeight& w, const TensorEntry* index, int64_t column) {
  return index ? static_cast<int64_t>(WordAt(*index, column)) : column / GroupSize(w);
}

// The stored column that is column c of what is kept.
inline int64_t ColumnAt(const StoredWeight& w, int64_t c) {
  return w.order.empty() ? c : w.order[static_cast<size_t>(c)];
}
// A row's codes of four bits in the order of what is kept: kCode(w, row, column).
template <auto kCode>
void KeepOrderedWords(const StoredWeight& w, int64_t row, std::byte* codes) {
  for (int64_t begin = 0; begin < w.k; begin += kPerWord, codes += 4) {
    uint32_t word = ops::kZeroWord;
    for (int64_t i = 0; i < std::min(kPerWord, w.k - begin); ++i) {
      const auto code = static_cast<uint32_t>(kCode(w, row, ColumnAt(w, begin + i)));
      word = (word & ~(15u << 4 * i)) | code << 4 * i;
    }
    std::memcpy(codes, &word, sizeof word);
  }
}

// Writes a row's scales in fp16, one per 32 columns: of group g the scale is number first + g *
// step of a tensor in kGroupScaleTypes, and fp16 holds it.
void KeepScales(const StoredWeight& w, const TensorEntry& scales, int64_t first, int64_t step,
                std::byte* out);

// Whether groups consist of so many columns, or a multiple: one after the other in the order of
// what is kept, with scales that fp16 holds.
bool GroupsFit(const StoredWeight& w, int64_t columns, const TensorEntry& scales,
               const TensorEntry* index);
// The same where a base of scale times zero point is subtracted, so that scales must be finite.
bool GroupsFitWithZeros(const StoredWeight& w, int64_t columns, const TensorEntry& scales,
                        const TensorEntry* index);

// Whether integers of eight bits, whose zero points are all 128, run as `format`: int8 where one
// scale holds for a row, q8_0 with its scales.
template <ops::WeightFormat kFormat>
bool BytesFit(const StoredWeight& w, const TensorEntry& scales, const TensorEntry* index) {
  if constexpr (kFormat == ops::WeightFormat::kI8) return GroupCount(w) == 1;
  return GroupsFit(w, ops::kInt4Columns, scales, index);
}
// A row in one of these: kCode(w, row, column), kScale(w, row, group).
template <ops::WeightFormat kFormat, auto kCode, auto kScale>
void KeepBytes(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  for (int64_t c = 0; c < w.k; ++c) {
    codes[c] = static_cast<std::byte>(kCode(w, row, ColumnAt(w, c)) - 128);
  }
  if constexpr (kFormat == ops::WeightFormat::kI8) {
    const float scale = kScale(w, row, 0);
    std::memcpy(scales, &scale, sizeof scale);
  } else {
    for (int64_t c = 0; c < w.k; c += ops::kInt4Columns, scales += 2) {
      const uint16_t half = F16OfFloat(kScale(w, row, c / GroupSize(w)));
      std::memcpy(scales, &half, sizeof half);
    }
  }
}

// A row in a format of integers with zero points, whose scale `columns` columns share:
// kCode(w, row, column), kZero(w, row, group), kScale(w, row, group).
template <auto kCode, auto kZero, auto kScale, int64_t kColumns>
void KeepWithZeros(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  for (int64_t c = 0; c < w.k; ++c) {
    codes[c] = static_cast<std::byte>(kCode(w, row, ColumnAt(w, c)));
  }
  for (int64_t c = 0; c < w.k; c += kColumns) {
    const int64_t group = c / GroupSize(w);
    const uint16_t half = F16OfFloat(kScale(w, row, group));
    std::memcpy(scales, &half, 2);
    scales[2] = static_cast<std::byte>(kZero(w, row, group));
    scales += 3;
  }
}

}  // namespace braid
