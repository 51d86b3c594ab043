// The work of bringing a weight into the layout that kernels read, in tasks that any thread may
// take: loading writes the result to memory, `convert --mapped` to a file.
#pragma once

#include <cstddef>
#include <vector>

#include "model/loading/weight_binding.h"

namespace braid {

// Panels [begin, end) of one matrix, or a whole vector.
struct PackTask {
  size_t weight = 0;
  int64_t matrix = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t source_begin = 0;  // of the weight's elements
  int64_t source_end = 0;
};

// Appends the tasks of weight number `index`, a few megabytes of decoded source each.
void AppendTasks(const BoundWeight& bound, size_t index, std::vector<PackTask>& tasks);

// Bytes of the task's panels, and of the order of columns behind the last one of a matrix.
int64_t TaskBytes(const BoundWeight& bound, const PackTask& task);
// Writes these one after the other to `out`. The error names a row whose scales are kept as they
// are and are not finite.
Status PackPanels(const BoundWeight& bound, const PackTask& task, std::byte* out);

// A vector's n * k elements in the order of the checkpoint, [n, k].
std::vector<float> ReadVector(const BoundWeight& bound);

}  // namespace braid
