// A row of the cache, rounded or quantised by a kernel table, and as floats again.
#pragma once

#include <algorithm>

#include "ops/cpu/kernels/table.h"
#include "ops/kv_page.h"

namespace braid::ops::cpu {

// Stores x[to.dim] as row `slot`.
inline void StoreKvRow(const KernelTable& kernels, DType kv_dtype, const float* x, int64_t slot,
                       const CachedRows& to) {
  const int64_t dim = to.dim, at = slot * dim;
  switch (kv_dtype) {
    case DType::kI8:
      to.scales[slot] = kernels.to_int8(x, reinterpret_cast<int8_t*>(to.rows) + at, dim);
      return;
    case DType::kBF16:
      kernels.to_bf16(x, reinterpret_cast<uint16_t*>(to.rows) + at, dim);
      return;
    default:
      std::copy_n(x, dim, reinterpret_cast<float*>(to.rows) + at);
  }
}

// Call it when a token's key and value stand in row `slot`. Products of tiles multiply values of
// bf16 by weights of zero too, for the rows that do not see them, and zero times infinity or NaN is
// NaN. So a value that is not finite becomes zero, and its key NaN for the rows that see it. Behind
// a latent value is a part of the key.
inline void KeepValueFinite(const AttentionShape& shape, int64_t slot, const KvPage& page) {
  if (shape.kv_dtype != DType::kBF16) return;
  constexpr uint16_t kExponent = 0x7f80, kNan = 0x7fc0;
  const int64_t dim = shape.out_dim();
  auto* key = reinterpret_cast<uint16_t*>(page.keys.rows) + slot * page.keys.dim;
  auto* value = reinterpret_cast<uint16_t*>(page.values.rows) + slot * page.values.dim;
  if (std::none_of(value, value + dim, [](uint16_t x) { return (x & kExponent) == kExponent; })) {
    return;
  }
  std::fill_n(key, page.keys.dim, kNan);
  std::fill_n(value, dim, uint16_t{0});
}

// Row `slot` to out[from.dim].
inline void LoadKvRow(DType kv_dtype, const CachedRows& from, int64_t slot, float* out) {
  const int64_t at = slot * from.dim;
  switch (kv_dtype) {
    case DType::kI8: {
      const auto* row = reinterpret_cast<const int8_t*>(from.rows) + at;
      for (int64_t c = 0; c < from.dim; ++c) out[c] = from.scales[slot] * row[c];
      return;
    }
    case DType::kBF16: {
      const auto* row = reinterpret_cast<const uint16_t*>(from.rows) + at;
      for (int64_t c = 0; c < from.dim; ++c) out[c] = FloatOfBf16(row[c]);
      return;
    }
    default:
      std::copy_n(reinterpret_cast<const float*>(from.rows) + at, from.dim, out);
  }
}

}  // namespace braid::ops::cpu
