// What the decoders of 4-bit codes share: groups of columns with a scale each, and words of eight
// codes. Pure.
#pragma once

#include <cstring>
#include <string>

#include "base/math.h"
#include "model/formats/quantization.h"
#include "model/formats/storage_format.h"
#include "ops/weight_codes.h"

namespace braid {

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

// The eight codes of a word, lowest bits first, each stored plus 8.
inline uint64_t CodesOfWord(uint32_t word) {
  uint64_t bytes = word;  // a byte for each four bits
  bytes = (bytes | bytes << 16) & 0x0000ffff0000ffffu;
  bytes = (bytes | bytes << 8) & 0x00ff00ff00ff00ffu;
  bytes = (bytes | bytes << 4) & 0x0f0f0f0f0f0f0f0fu;
  bytes ^= 0x0808080808080808u;
  return bytes | (bytes & 0x0808080808080808u) * 0x1e;  // the sign
}

// The group of every column, from a tensor [k] of 32-bit numbers, or what is wrong with one.
std::string GroupIndexProblem(const StoredWeight& w, const TensorEntry& index);
inline int64_t GroupOf(const StoredWeight& w, const TensorEntry* index, int64_t column) {
  return index ? static_cast<int64_t>(WordAt(*index, column)) : column / GroupSize(w);
}

// Whether groups are those of the engine's int4, or several of those: in the order of the columns,
// with scales that fp16 holds.
bool GroupsFitInt4(const StoredWeight& w, const TensorEntry& scales, const TensorEntry* index);

}  // namespace braid
