// What the two forms of latent attention share: sizes and one step of a layer.
// A form runs the sequences that take it, from projected queries and raw cache rows to the mixed
// values of their tokens. What a token gets does not depend on the other sequences of the step.
#pragma once

#include <algorithm>

#include "model/layer_context.h"
#include "ops/attention.h"
#include "ops/latent.h"

namespace braid {

inline int64_t QueryDim(const LatentAttention& m) { return int64_t{m.key_dim} + m.shared_dim; }
inline int64_t RowWidth(const LatentAttention& m) { return int64_t{m.latent_dim} + m.shared_dim; }
// Of the cache, as `heads` heads read it.
inline ops::AttentionShape ShapeOf(const LatentAttention& m, int32_t heads, DType kv_dtype) {
  return {heads, 1, static_cast<int32_t>(RowWidth(m)), kv_dtype, m.latent_dim, true};
}

struct LatentStep {
  const LatentAttentionWeights& weights;
  Matrix q;    // [tokens, heads * QueryDim], raw
  Matrix row;  // [tokens, RowWidth], raw cache rows
  ops::Rotation rotation;
  Matrix gate;   // [tokens, heads] or empty
  Matrix mixed;  // [tokens, heads * value_dim]
};

// Memory of the heads that are computed at the same time, or of one where that is more. A head's
// result does not depend on which others are.
inline constexpr int64_t kHeadsBytes = int64_t{128} << 20;

// Matrices of the heads from `first` on.
inline ops::PackedMatrix HeadsOf(const Weight& weight, int64_t first, int64_t count) {
  ops::PackedMatrix w = weight.matrix;
  if (w.data) w.data += first * w.matrix_bytes();  // none while memory is measured
  w.count = count;
  return w;
}

// Heads at a time, and the bytes to take for them: never less where a head needs more, for the
// workspace is measured with the largest step.
struct HeadsAtOnce {
  HeadsAtOnce(int64_t heads, int64_t head_bytes)
      : bytes(std::min(heads * head_bytes, std::max(head_bytes, kHeadsBytes))),
        count(std::min(heads, bytes / head_bytes)) {}
  int64_t bytes;
  int64_t count;
};

// `sequences` are some of the step's.
void RunAbsorbed(const LatentAttention& m, const LayerContext& c, const LatentStep& step,
                 const ops::SequenceIndex& sequences);
// One sequence. Overwrites its part of step.q.
void RunExpanded(const LatentAttention& m, const LayerContext& c, const LatentStep& step,
                 const ops::SequenceSpan& span);

}  // namespace braid
