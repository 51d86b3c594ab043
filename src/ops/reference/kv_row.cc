// Rounding and quantising, element by element.
#include "ops/reference/kv_row.h"

#include "ops/reference/quantise.h"

namespace braid::ops::reference {

void StoreKvRow(DType kv_dtype, const float* x, int64_t slot, const CachedRows& to) {
  const int64_t dim = to.dim, at = slot * dim;
  switch (kv_dtype) {
    case DType::kI8: {
      const Quantised row = Quantise(x, dim);
      to.scales[slot] = row.scale;
      for (int64_t c = 0; c < dim; ++c) {
        reinterpret_cast<int8_t*>(to.rows)[at + c] =
            static_cast<int8_t>(row.values[static_cast<size_t>(c)]);
      }
      return;
    }
    case DType::kBF16:
      for (int64_t c = 0; c < dim; ++c) {
        reinterpret_cast<uint16_t*>(to.rows)[at + c] = Bf16OfFloat(x[c]);
      }
      return;
    default:
      for (int64_t c = 0; c < dim; ++c) reinterpret_cast<float*>(to.rows)[at + c] = x[c];
  }
}

std::vector<double> KvRow(DType kv_dtype, const CachedRows& from, int64_t slot) {
  std::vector<double> row(static_cast<size_t>(from.dim));
  int64_t at = slot * from.dim;
  for (double& x : row) {
    switch (kv_dtype) {
      case DType::kI8:
        x = double{from.scales[slot]} * reinterpret_cast<const int8_t*>(from.rows)[at];
        break;
      case DType::kBF16:
        x = FloatOfBf16(reinterpret_cast<const uint16_t*>(from.rows)[at]);
        break;
      default:
        x = reinterpret_cast<const float*>(from.rows)[at];
    }
    ++at;
  }
  return row;
}

}  // namespace braid::ops::reference
