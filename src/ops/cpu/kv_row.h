// A row of the cache, rounded or quantised by a kernel table.
#pragma once

#include <algorithm>

#include "ops/cpu/kernels/table.h"
#include "ops/kv_page.h"

namespace braid::ops::cpu {

// Stores x[head_dim] as row `slot`.
inline void StoreKvRow(const braid::cpu::KernelTable& kernels, const AttentionShape& shape,
                       const float* x, int64_t slot, const KvRows& to) {
  const int64_t dim = shape.head_dim, at = slot * dim;
  switch (shape.kv_dtype) {
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

}  // namespace braid::ops::cpu
