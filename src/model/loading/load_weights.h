// Reads the weights of a bound checkpoint into memory, in the layout that kernels read.
#pragma once

#include <functional>

#include "base/result.h"
#include "base/system/thread_pool.h"
#include "model/loading/weight_binding.h"
#include "model/weights.h"

namespace braid {

// fraction in [0, 1]; called from the thread that loads.
using LoadProgress = std::function<void(double fraction)>;

// kExhausted when the weights need more memory than is available.
Result<ModelWeights> LoadWeights(Binding binding, ThreadPool& pool,
                                 const LoadProgress& progress = {});

}  // namespace braid
