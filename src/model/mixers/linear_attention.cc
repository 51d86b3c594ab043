// Linear attention: input projection, convolution or normed and rotated q and k, the recurrence,
// gated norm, output projection. Which of these a mixer has is data (model/spec.h).
#include "model/mixers/linear_attention.h"

#include <algorithm>
#include <vector>

#include "base/block.h"
#include "model/layer_context.h"
#include "ops/linear.h"
#include "ops/linear_attention.h"
#include "ops/ranks.h"
#include "ops/rotary.h"
#include "ops/vulkan/constants.h"

namespace braid {
namespace {

ops::LinearAttentionShape ShapeOf(const LinearAttention& m) {
  return {m.key_heads,  m.value_heads,   m.key_dim,    m.value_dim,
          m.conv_width, m.channel_decay, m.drafts_max, m.state_dtype};
}

// q and k of every head normed and rotated, in place.
void NormRotate(const LinearAttention& m, const LinearAttentionWeights& w, const LayerContext& c,
                Matrix qkv) {
  WorkspaceScope scope(*c.op.workspace);
  const int64_t key = RowsOf(m).key;
  const float* inverse_frequency = ops::KeptConstants(
      c.op, m.rotary.dims / 2, [&](float* to) { FillInverseFrequencies(m.rotary, to); });
  const ops::Rotation rotation{inverse_frequency, m.rotary.dims / 2, m.rotary.scale,
                               m.rotary.interleaved};
  for (int64_t part = 0; part < 2; ++part) {
    ops::HeadNormRotate(c.op, {.sequences = c.sequences,
                               .x = qkv.columns(part * key, key),
                               .head_dim = m.key_dim,
                               .weight = (part == 0 ? w.q_norm : w.k_norm).vector,
                               .eps = c.norm.eps,
                               .rotation = rotation});
  }
}

// `low` through `up` where the mixer has it.
Matrix FromLowRank(const LayerContext& c, const Weight& up, Matrix low) {
  if (up.matrix.n == 0) return low;
  Matrix all = c.op.workspace->TakeMatrix(low.rows, up.matrix.n);
  ops::Linear(c.op, {.x = low, .w = &up.matrix, .y = all});
  return all;
}

}  // namespace

CacheNeed CacheOf(const LinearAttention& m, DType) {
  return {.kind = GroupKind::kState, .block_bytes = ops::StateBlockBytes(ShapeOf(m))};
}

std::vector<Cost> CostsOf(const LinearAttention& m, int64_t hidden, const StepShape& shape) {
  const LinearRows rows = RowsOf(m);
  const double tokens = static_cast<double>(shape.tokens);
  const double from_low_rank =
      m.gate_lora_rank * static_cast<double>(rows.value + int64_t{m.value_heads} * m.key_dim);
  const double gates =
      static_cast<double>(rows.gates() * hidden) + from_low_rank;  // never quantised
  const double projections = static_cast<double>((rows.in() + rows.value) * hidden);
  const double state = static_cast<double>(m.value_heads) * m.key_dim * m.value_dim;
  const double within =
      static_cast<double>(m.value_heads) * kBlockTokens / 2 * (4.0 * m.key_dim + 4.0 * m.value_dim);
  // The state is read once per step and sequence; rows of the chunk in progress are half a state.
  const double state_bytes = 1.5 * state * static_cast<double>(SizeOf(m.state_dtype));
  const double weight_bytes = shape.bytes_per_weight * projections + 2 * gates;
  return {{.flops = 2 * (projections + gates) * tokens,
           .bytes = weight_bytes,
           .weight_bytes = weight_bytes,
           .part = "linear attention projections"},
          {.flops = tokens * (6 * state + within),
           .bytes = static_cast<double>(shape.sequences) * state_bytes,
           .part = "linear attention"}};
}

void Forward(const LinearAttention& m, const LinearAttentionWeights& w, const LayerContext& c,
             Matrix x, Matrix out) {
  WorkspaceScope scope(*c.op.workspace);
  Workspace& ws = *c.op.workspace;
  const LinearRows rows = RowsOf(m);
  Matrix in = ws.TakeMatrix(x.rows, rows.in());
  Matrix gates = ws.TakeMatrix(x.rows, rows.gates());
  Matrix mixed = ws.TakeMatrix(x.rows, rows.value);
  ops::Linear(c.op, {.x = x, .w = &w.in.matrix, .y = in});
  if (rows.gates() > 0) {
    ops::Linear(c.op, {.x = x, .w = &w.gates.matrix, .y = gates, .beside = true});
  }
  Matrix qkv = in.columns(0, rows.conv);
  if (m.conv_width > 1) {
    qkv = ws.TakeMatrix(x.rows, rows.conv);
    ops::CausalConv(c.op, {.shape = ShapeOf(m),
                           .sequences = c.sequences,
                           .cache = c.cache,
                           .x = in.columns(0, rows.conv),
                           .weight = w.conv.vector,
                           .out = qkv});
  }
  if (m.qk_norm) NormRotate(m, w, c, qkv);
  const float* constant = nullptr;
  if (!m.constant_decay.empty()) {
    constant = ops::KeptConstants(c.op, std::ssize(m.constant_decay),
                                  [&](float* to) { std::ranges::copy(m.constant_decay, to); });
  }
  const Matrix decay = FromLowRank(c, w.decay_up, gates.columns(rows.update, rows.decay));
  ops::LinearAttentionStep(c.op, {.shape = ShapeOf(m),
                                  .sequences = c.sequences,
                                  .cache = c.cache,
                                  .rule = m.rule,
                                  .qkv = qkv,
                                  .a = decay,
                                  .b = gates.columns(0, rows.update),
                                  .a_log = w.a_log.vector,
                                  .dt_bias = w.dt_bias.vector,
                                  .constant = constant,
                                  .out = mixed});
  const bool grouped = m.norm_groups > 0;
  ops::GatedNorm(c.op, {.x = mixed,
                        .gate = FromLowRank(c, w.gate_up, in.columns(rows.conv, rows.gate)),
                        .weight = w.norm.vector,
                        .weight_per_channel = grouped,
                        .head_dim = grouped ? rows.value / m.norm_groups : m.value_dim,
                        .activation = m.gate,
                        .eps = c.norm.eps,
                        .out = mixed});
  ops::DividedLinear(c.op, {.x = mixed, .w = &w.out.matrix, .y = out});
}

}  // namespace braid
