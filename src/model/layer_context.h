// What a kind's Forward may see: the ops, its weights in the order of WeightsOf, the step's
// sequences and its slice of the cache. Scratch comes from op.workspace inside a WorkspaceScope.
#pragma once

#include <span>

#include "model/loading/weights.h"
#include "model/spec.h"
#include "ops/op.h"
#include "ops/sequence.h"

namespace braid {

struct LayerContext {
  const ops::OpContext& op;
  std::span<const Weight> weights;
  ops::SequenceIndex sequences;
  ops::CacheSlice cache;
  DType kv_dtype = DType::kF32;
  NormSpec norm;
};

}  // namespace braid
