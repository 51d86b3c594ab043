// Writes a model as it lies in memory: matrices as panels that the engine maps and reads in place.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "base/system/thread_pool.h"
#include "model/writing/convert.h"
#include "model/loading/weight_choice.h"

namespace braid {

struct PanelsRequest {
  std::string from;  // a directory or a GGUF file
  std::string to;    // made if it is not there; must be empty
  WeightChoice choice;
  int64_t shard_bytes_max = int64_t{32} << 30;
  std::function<void(double fraction)> progress;  // may be empty; called from the calling thread
};

// Every weight in the format in which it runs with `choice`, bit for bit what loading makes of it.
// Takes some megabytes of memory per thread. `quantised` counts matrices, `rounded` stays 0.
Result<Converted> ConvertToPanels(const PanelsRequest& request, ThreadPool& pool);

}  // namespace braid
