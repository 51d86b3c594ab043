// The sequences of one step, as every op that has memory sees them: which tokens of the flattened
// batch are whose, at which positions, and where their pages lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/block.h"

namespace braid::ops {

// Tokens [token_begin, token_begin + token_count) of the batch are positions start, … of one
// sequence. tables[g][i] is the address of block i of cache group g, or null for a hole. See
// cache/geometry.h for which entries a step may read and write.
struct SequenceSpan {
  int32_t token_begin = 0;
  int32_t token_count = 0;
  int32_t start = 0;
  std::array<std::byte* const*, kCacheGroupsMax> tables = {};
};

// Spans follow each other: each begins where the one before ends. They may be some of a step's.
struct SequenceIndex {
  const SequenceSpan* spans = nullptr;
  int32_t count = 0;
  int32_t tokens = 0;  // sum of token_count
};

// Where a layer's part lies inside each block of a cache group.
struct CacheSlice {
  int32_t group = 0;
  int64_t byte_offset = 0;
  // The layer's sequence begins at position 1: tokens after position 0 do not attend to it.
  bool skip_first = false;
};

// Rows of numbers in a block, of a type that the layer's shape names.
struct CachedRows {
  std::byte* rows = nullptr;  // [count][dim]
  float* scales = nullptr;    // of integers: [count], else null
  int64_t dim = 0;
};

}  // namespace braid::ops
