// The expanded form: keys and values of some heads are made from all latent rows of the sequence,
// as blocks of an ordinary cache in the workspace, and attention reads those: of 192 + 128 channels
// where the latent ones are 576 + 512. They have the precision of products' operands.
#include <algorithm>

#include "base/block.h"
#include "base/math.h"
#include "model/mixers/latent_attention.h"

namespace braid {
namespace {

ops::AttentionShape ExpandedShape(const LatentAttention& m, int64_t heads, const Device& device) {
  const auto count = static_cast<int32_t>(heads);
  return {.heads = count,
          .kv_heads = count,
          .head_dim = static_cast<int32_t>(QueryDim(m)),
          .kv_dtype = device.compute == Compute::kBF16 ? DType::kBF16 : DType::kF32,
          .value_dim = m.value_dim};
}

}  // namespace

void RunExpanded(const LatentAttention& m, const LayerContext& c, const LatentStep& step,
                 const ops::SequenceSpan& span) {
  Workspace& ws = *c.op.workspace;
  WorkspaceScope scope(ws);
  const int64_t blocks = CeilDiv(int64_t{span.start} + span.token_count, int64_t{kBlockTokens});
  const HeadsAtOnce at_once(m.heads, blocks * ExpandedShape(m, 1, c.op.device).head_bytes());
  std::byte** table = ws.Take<std::byte*>(blocks);
  std::byte* memory = ws.Take<std::byte>(at_once.bytes);
  ops::SequenceSpan expanded = span;
  expanded.tables[0] = table;
  const ops::AttentionShape cached = ShapeOf(m, m.heads, c.kv_dtype);
  ops::WriteLatent(c.op, {.shape = cached,
                          .sequences = {&span, 1, span.token_count},
                          .cache = c.cache,
                          .row = step.row,
                          .norm = step.weights.kv_norm.vector,
                          .eps = m.latent_eps,
                          .rotation = step.rotation,
                          .q = step.q,
                          .q_out = step.q});
  for (int64_t first = 0; first < m.heads; first += at_once.count) {
    const int64_t count = std::min(at_once.count, m.heads - first);
    const ops::AttentionShape shape = ExpandedShape(m, count, c.op.device);
    const ops::PackedMatrix keys = HeadsOf(step.weights.expanded_keys, first, count);
    const ops::PackedMatrix values = HeadsOf(step.weights.value_up, first, count);
    for (int64_t b = 0; !ws.measuring() && b < blocks; ++b) {
      table[b] = memory + b * count * shape.head_bytes();
    }
    ops::ExpandLatent(c.op, {.shape = cached,
                             .span = &span,
                             .cache = c.cache,
                             .keys = &keys,
                             .values = &values,
                             .heads = shape,
                             .blocks = table});
    ops::Attention(c.op, {.shape = shape,
                          .sequences = {&expanded, 1, span.token_count},
                          .q = step.q.columns(first * QueryDim(m), count * QueryDim(m)),
                          .scale = m.score_scale,
                          .gate = step.gate.data ? step.gate.columns(first, count) : Matrix{},
                          .gate_stride = 1,
                          .gate_per_head = true,
                          .out = step.mixed.columns(first * m.value_dim, count * m.value_dim)});
  }
}

}  // namespace braid
