// Which bytes of a checkpoint are which weight. Binding is strict in both directions: every weight
// has exactly one complete source, every tensor is claimed; whatever is wrong is reported in one
// message.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/spec.h"
#include "model/weights.h"

namespace braid {

// Bytes of a tensor that lie one after the other, and the weight's source bytes that they are.
struct SourceRun {
  const TensorEntry* tensor = nullptr;
  int64_t tensor_offset = 0;
  int64_t weight_offset = 0;
  int64_t bytes = 0;
};

// The weight's count * n * k elements, row-major, in runs of ascending weight_offset.
struct BoundWeight {
  const WeightSpec* spec = nullptr;
  DType dtype = DType::kBF16;  // of all its elements
  std::vector<SourceRun> runs;

  // The run that holds the byte `offset` of the weight's source, and that byte's address.
  const SourceRun& RunAt(int64_t offset) const;
  const std::byte* At(int64_t offset) const;
};

// `weights` in the order given. Fills `report` when it is not null.
Result<std::vector<BoundWeight>> BindWeights(const ModelSpec& spec,
                                             const std::vector<const WeightSpec*>& weights,
                                             const Checkpoint& checkpoint, LoadReport* report);

}  // namespace braid
