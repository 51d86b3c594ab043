// What a kind's Forward may see beside its weights: the ops, the step's sequences and its slice of
// the cache. Scratch comes from op.workspace inside a WorkspaceScope.
#pragma once

#include "model/spec.h"
#include "ops/op.h"
#include "ops/sequence.h"

namespace braid {

struct LayerContext {
  const ops::OpContext& op;
  ops::SequenceIndex sequences;
  ops::CacheSlice cache;
  DType kv_dtype = DType::kF32;
  NormSpec norm;
};

}  // namespace braid
