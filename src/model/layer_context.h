// What a kind's Forward may see beside its weights: the ops, the step's sequences and its slice of
// the cache. Scratch comes from op.workspace inside a WorkspaceScope.
#pragma once

#include <cstdint>
#include <span>

#include "model/spec.h"
#include "ops/op.h"
#include "ops/sequence.h"

namespace braid {

// Hears which experts a layer's tokens chose: [tokens, top_k].
struct RouteSink {
  virtual ~RouteSink() = default;
  virtual void OnRoute(int32_t layer, std::span<const int32_t> experts) = 0;
};

struct LayerContext {
  const ops::OpContext& op;
  ops::SequenceIndex sequences;
  ops::CacheSlice cache;
  DType kv_dtype = DType::kF32;
  NormSpec norm;
  int32_t layer = 0;            // of the model
  RouteSink* routes = nullptr;  // null: nobody listens
};

}  // namespace braid
