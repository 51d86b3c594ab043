// Softmax attention with grouped heads, optional per-head output gate, q/k norms and partial
// rotation.
#include <cmath>
#include <vector>

#include "base/block.h"
#include "model/layer_context.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/ranks.h"
#include "ops/vulkan/constants.h"

namespace braid {
namespace {

int64_t QueryRows(const FullAttention& m) {
  return int64_t{m.heads} * m.head_dim * (m.output_gate ? 2 : 1);
}
int64_t KeyRows(const FullAttention& m) { return int64_t{m.kv_heads} * m.head_dim; }
ops::AttentionShape ShapeOf(const FullAttention& m, DType kv_dtype) {
  return {m.heads, m.kv_heads, m.head_dim, kv_dtype};
}

}  // namespace

void ListWeights(const FullAttention& m, const LayerPlace& place, FullAttentionWeights& w,
                 WeightList& list) {
  const int64_t q = QueryRows(m), kv = KeyRows(m), out = int64_t{m.heads} * m.head_dim;
  const std::string base = place.prefix + "self_attn.";
  list.push_back({&w.qkv,
                  {.name = base + "qkv",
                   .n = q + 2 * kv,
                   .k = place.hidden,
                   .units = {{ShardUnit::kHead, m.heads, q / m.heads},
                             {ShardUnit::kKeyHead, m.kv_heads, m.head_dim},
                             {ShardUnit::kKeyHead, m.kv_heads, m.head_dim}},
                   .sources = {{{base + "q_proj.weight", {q, place.hidden}, {}},
                                {base + "k_proj.weight", {kv, place.hidden}, {}},
                                {base + "v_proj.weight", {kv, place.hidden}, {}}}}}});
  list.push_back({&w.out,
                  {.name = base + "o_proj",
                   .n = place.hidden,
                   .k = out,
                   .units = {{ShardUnit::kRow, place.hidden}},
                   .sources = {{{base + "o_proj.weight", {place.hidden, out}, {}}}}}});
  if (!m.qk_norm) return;
  auto norm = [&](Weight& weight, const std::string& name) {
    list.push_back({&weight,
                    {.name = name,
                     .use = WeightUse::kVector,
                     .n = m.head_dim,
                     .sources = {{{name + ".weight", {m.head_dim}, {}}}}}});
  };
  norm(w.q_norm, base + "q_norm");
  norm(w.k_norm, base + "k_norm");
}

CacheNeed CacheOf(const FullAttention& m, DType kv_dtype) {
  return {.kind = GroupKind::kFull, .block_bytes = m.kv_heads * ShapeOf(m, kv_dtype).head_bytes()};
}

std::vector<Cost> CostsOf(const FullAttention& m, int64_t hidden, const StepShape& shape) {
  const double tokens = static_cast<double>(shape.tokens);
  const double per_sequence =
      shape.sequences > 0 ? tokens / static_cast<double>(shape.sequences) : 0.0;
  const double keys = static_cast<double>(shape.context_tokens) + (per_sequence + 1) / 2;
  const double weights =
      static_cast<double>((QueryRows(m) + 2 * KeyRows(m)) * hidden + hidden * m.heads * m.head_dim);
  const double cached = static_cast<double>(shape.sequences * shape.context_tokens + shape.tokens);
  const double weight_bytes = shape.bytes_per_weight * weights;
  return {
      {.flops = 2 * weights * tokens,
       .bytes = weight_bytes,
       .weight_bytes = weight_bytes,
       .part = "attention projections"},
      {.flops = 4.0 * tokens * keys * m.heads * m.head_dim,
       .bytes = cached / kBlockTokens * static_cast<double>(CacheOf(m, shape.kv_dtype).block_bytes),
       .part = "attention"}};
}

void Forward(const FullAttention& m, const FullAttentionWeights& w, const LayerContext& c, Matrix x,
             Matrix out) {
  WorkspaceScope scope(*c.op.workspace);
  Workspace& ws = *c.op.workspace;
  const int64_t q_cols = QueryRows(m), kv_cols = KeyRows(m), dim = m.head_dim;
  const ops::AttentionShape shape = ShapeOf(m, c.kv_dtype);
  Matrix qkv = ws.TakeMatrix(x.rows, q_cols + 2 * kv_cols);
  Matrix q = ws.TakeMatrix(x.rows, m.heads * dim);
  Matrix mixed = ws.TakeMatrix(x.rows, m.heads * dim);
  const int32_t pairs = m.rotary.dims / 2;
  const float* inverse_frequency =
      ops::KeptConstants(c.op, pairs, [&](float* to) { FillInverseFrequencies(m.rotary, to); });
  const int64_t q_stride = m.output_gate ? 2 * dim : dim;
  ops::Linear(c.op, {.x = x, .w = &w.qkv.matrix, .y = qkv});
  ops::NormRopeWriteKv(c.op, {.shape = shape,
                              .sequences = c.sequences,
                              .cache = c.cache,
                              .q = qkv.columns(0, q_cols),
                              .q_stride = q_stride,
                              .k = qkv.columns(q_cols, kv_cols),
                              .v = qkv.columns(q_cols + kv_cols, kv_cols),
                              .q_norm = w.q_norm.vector,
                              .k_norm = w.k_norm.vector,
                              .norm_offset = c.norm.offset,
                              .eps = c.norm.eps,
                              .inverse_frequency = inverse_frequency,
                              .rotary_pairs = pairs,
                              .q_out = q});
  ops::Attention(c.op, {.shape = shape,
                        .sequences = c.sequences,
                        .cache = c.cache,
                        .q = q,
                        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim))),
                        .gate = m.output_gate ? qkv.columns(dim, q_cols - dim) : Matrix{},
                        .gate_stride = q_stride,
                        .out = mixed});
  ops::DividedLinear(c.op, {.x = mixed, .w = &w.out.matrix, .y = out});
}

}  // namespace braid
