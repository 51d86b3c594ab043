// Where a token's keys and values lie in a block: the address arithmetic that the references and
// every candidate share (ops/attention.h has the layout).
#pragma once

#include "base/check.h"
#include "ops/attention.h"

namespace braid::ops {

// One kv head's part of one block. A latent cache's values are its keys.
struct KvPage {
  CachedRows keys, values;
};

// Of the block of position `position`.
inline KvPage KvPageOf(const AttentionShape& shape, const CacheSlice& cache,
                       const SequenceSpan& span, int64_t position, int64_t head) {
  std::byte* block = span.tables[static_cast<size_t>(cache.group)][position / kBlockTokens];
  CHECK(block != nullptr, "no block for position {}", position);
  std::byte* keys = block + cache.byte_offset + head * shape.head_bytes();
  std::byte* values = shape.latent ? keys : keys + shape.keys_bytes();
  KvPage page{{keys, nullptr, shape.head_dim}, {values, nullptr, shape.value_stride()}};
  if (shape.kv_dtype == DType::kI8) {
    page.keys.scales = reinterpret_cast<float*>(keys + shape.keys_bytes() + shape.values_bytes());
    page.values.scales = page.keys.scales + (shape.latent ? 0 : kBlockTokens);
  }
  return page;
}

}  // namespace braid::ops
