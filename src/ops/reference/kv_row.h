// Rows of the cache, element by element.
#pragma once

#include <vector>

#include "ops/kv_page.h"

namespace braid::ops::reference {

// Stores x[head_dim] as row `slot`.
void StoreKvRow(const AttentionShape& shape, const float* x, int64_t slot, const KvRows& to);
// Row `slot` as the numbers that it stands for.
std::vector<double> KvRow(const AttentionShape& shape, const KvRows& from, int64_t slot);

}  // namespace braid::ops::reference
