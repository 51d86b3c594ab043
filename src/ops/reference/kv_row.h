// Rows of the cache, element by element.
#pragma once

#include <vector>

#include "ops/kv_page.h"

namespace braid::ops::reference {

// Stores x[to.dim] as row `slot`.
void StoreKvRow(DType kv_dtype, const float* x, int64_t slot, const CachedRows& to);
// Row `slot` as the numbers that it stands for.
std::vector<double> KvRow(DType kv_dtype, const CachedRows& from, int64_t slot);

}  // namespace braid::ops::reference
