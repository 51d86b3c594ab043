// Shared by the decoders of 4-bit codes: groups of columns with a scale each, and words of eight
// codes. Pure.
#pragma once

#include <cstring>
#include <string>

#include "base/math.h"
#include "model/checkpoint/formats/quantization.h"
#include "model/checkpoint/formats/storage_format.h"
#include "ops/weight_format.h"

namespace braid {

inline constexpr int64_t kPerWord = ops::kCodesPerWord;
inline constexpr DType kGroupScaleTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

inline int64_t GroupSize(const StoredWeight& w) {
  return w.quantization->group > 0 ? w.quantization->group : w.k;
}
inline int64_t GroupCount(const StoredWeight& w) { return CeilDiv(w.k, GroupSize(w)); }

// Word i of a tensor of 32-bit words.
inline uint32_t WordAt(const TensorEntry& part, int64_t i) {
  uint32_t word;
  std::memcpy(&word, part.data + 4 * i, 4);
  return word;
}

// The group of every column, from a tensor [k] of 32-bit numbers, or what is wrong with one.
std::string GroupIndexProblem(const StoredWeight& w, const TensorEntry& index);
inline int64_t GroupOf(const StoredWeight& w, const TensorEntry* index, int64_t column) {
  return index ? static_cast<int64_t>(WordAt(*index, column)) : column / GroupSize(w);
}

// Writes a row's scales in fp16, one per 32 columns: of group g the scale is number first + g *
// step of a tensor in kGroupScaleTypes, and fp16 holds it.
void KeepScales(const StoredWeight& w, const TensorEntry& scales, int64_t first, int64_t step,
                std::byte* out);

// Whether groups are those of the engine's int4, or several of those: in the order of the columns,
// with scales that fp16 holds.
bool GroupsFitInt4(const StoredWeight& w, const TensorEntry& scales, const TensorEntry* index);

}  // namespace braid
