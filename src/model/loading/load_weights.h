// Reads the weights of a bound checkpoint into memory, in the layout that kernels read. Matrices of
// a mapped checkpoint stay in its file, which is read once, so that it is in the page cache.
#pragma once

#include <functional>

#include "base/result.h"
#include "base/system/thread_pool.h"
#include "model/loading/weight_binding.h"
#include "model/weights.h"

namespace braid {

// fraction in [0, 1]; called from the thread that loads.
using LoadProgress = std::function<void(double fraction)>;

// Bytes of the experts that stay in a mapped checkpoint's file. They may exceed memory.
int64_t PageableBytes(const Binding& binding);
// Of all experts that a router chooses.
int64_t RoutedBytes(const Binding& binding);
// Of the largest weight among them, and among the others.
struct LargestWeights {
  int64_t routed_bytes = 0, other_bytes = 0;
};
LargestWeights LargestWeightsOf(const Binding& binding);

// Routed experts have a buffer of their own. The checkpoint must outlive the weights. kExhausted
// when they need more memory than is available, experts in a mapped file apart; such a file's
// experts are not read ahead then.
Result<ModelWeights> LoadWeights(Binding binding, ThreadPool& pool,
                                 const LoadProgress& progress = {});

}  // namespace braid
