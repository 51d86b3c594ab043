// Gated linear attention: convolution, delta rule with a decay per head, gated norm.
// Weights: [q; k; v; z; b; a] as one matrix, out, convolution taps, A_log,
// dt_bias, norm.
#include "ops/linear_attention.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/block.h"
#include "model/layer_context.h"
#include "ops/linear.h"

namespace braid {
namespace {

enum : size_t { kIn, kOut, kConv, kALog, kDtBias, kNorm };

int64_t KeyRows(const LinearAttention& m) { return int64_t{m.key_heads} * m.key_dim; }
int64_t ValueRows(const LinearAttention& m) { return int64_t{m.value_heads} * m.value_dim; }
int64_t ConvChannels(const LinearAttention& m) { return 2 * KeyRows(m) + ValueRows(m); }
int64_t InRows(const LinearAttention& m) {
  return ConvChannels(m) + ValueRows(m) + 2 * int64_t{m.value_heads};
}

ops::LinearAttentionShape ShapeOf(const LinearAttention& m) {
  return {m.key_heads, m.value_heads, m.key_dim, m.value_dim, m.conv_width};
}

// Rows of one component (q, k, v, z, b or a) of a tensor that interleaves components per key head:
// in each of `heads` blocks of `block` rows, `count` rows from `offset`.
std::vector<RowRange> PerHead(int64_t heads, int64_t block, int64_t offset, int64_t count) {
  std::vector<RowRange> rows;
  for (int64_t h = 0; h < heads; ++h) rows.push_back({h * block + offset, count});
  return rows;
}

std::vector<Piece> FusedPieces(const LinearAttention& m, const std::string& base, int64_t hidden) {
  const int64_t heads = m.key_heads, ratio = m.value_heads / m.key_heads;
  const int64_t dk = m.key_dim, dv = ratio * m.value_dim, block = 2 * dk + 2 * dv;
  const std::string qkvz = base + "in_proj_qkvz.weight", ba = base + "in_proj_ba.weight";
  const std::vector<int64_t> qkvz_shape = {heads * block, hidden};
  const std::vector<int64_t> ba_shape = {2 * int64_t{m.value_heads}, hidden};
  return {{qkvz, qkvz_shape, PerHead(heads, block, 0, dk)},
          {qkvz, qkvz_shape, PerHead(heads, block, dk, dk)},
          {qkvz, qkvz_shape, PerHead(heads, block, 2 * dk, dv)},
          {qkvz, qkvz_shape, PerHead(heads, block, 2 * dk + dv, dv)},
          {ba, ba_shape, PerHead(heads, 2 * ratio, 0, ratio)},
          {ba, ba_shape, PerHead(heads, 2 * ratio, ratio, ratio)}};
}

std::vector<Piece> SeparatePieces(const LinearAttention& m, const std::string& base,
                                  int64_t hidden) {
  return {{base + "in_proj_qkv.weight", {ConvChannels(m), hidden}, {}},
          {base + "in_proj_z.weight", {ValueRows(m), hidden}, {}},
          {base + "in_proj_b.weight", {m.value_heads, hidden}, {}},
          {base + "in_proj_a.weight", {m.value_heads, hidden}, {}}};
}

}  // namespace

std::vector<WeightSpec> WeightsOf(const LinearAttention& m, const LayerPlace& place) {
  const std::string base = place.prefix + "linear_attn.";
  auto vector = [&](const char* name, int64_t n) {
    return WeightSpec{.name = base + name,
                      .use = WeightUse::kVector,
                      .n = n,
                      .sources = {{{base + name, {n}, {}}}}};
  };
  const std::vector<Piece> in = m.layout == DeltaLayout::kFused
                                    ? FusedPieces(m, base, place.hidden)
                                    : SeparatePieces(m, base, place.hidden);
  return {{.name = base + "in_proj",
           .n = InRows(m),
           .k = place.hidden,
           .shard = Shard::kRows,
           .sources = {in}},
          {.name = base + "out_proj",
           .n = place.hidden,
           .k = ValueRows(m),
           .shard = Shard::kColumns,
           .sources = {{{base + "out_proj.weight", {place.hidden, ValueRows(m)}, {}}}}},
          {.name = base + "conv1d",
           .use = WeightUse::kVector,
           .n = ConvChannels(m),
           .k = m.conv_width,
           .shard = Shard::kRows,
           .transpose = true,
           .sources = {{{base + "conv1d.weight", {ConvChannels(m), 1, m.conv_width}, {}}}}},
          vector("A_log", m.value_heads),
          vector("dt_bias", m.value_heads),
          vector("norm.weight", m.value_dim)};
}

CacheNeed CacheOf(const LinearAttention& m, DType) {
  return {.kind = GroupKind::kState, .block_bytes = ops::StateBlockBytes(ShapeOf(m))};
}

Cost CostOf(const LinearAttention& m, int64_t hidden, const StepShape& shape) {
  const double tokens = static_cast<double>(shape.tokens);
  const double weights = static_cast<double>(InRows(m) * hidden + hidden * ValueRows(m));
  const double state = static_cast<double>(m.value_heads) * m.key_dim * m.value_dim;
  const double within =
      static_cast<double>(m.value_heads) * kBlockTokens / 2 * (4.0 * m.key_dim + 4.0 * m.value_dim);
  // The state is read once per step and sequence; rows of the chunk in progress are half a state.
  return {.flops = 2 * weights * tokens + tokens * (6 * state + within),
          .bytes = 2 * weights + static_cast<double>(shape.sequences) * 6 * state};
}

void Forward(const LinearAttention& m, const LayerContext& c, Matrix x, Matrix out) {
  WorkspaceScope scope(*c.op.workspace);
  Workspace& ws = *c.op.workspace;
  const int64_t conv = ConvChannels(m), value = ValueRows(m), heads = m.value_heads;
  Matrix in = ws.TakeMatrix(x.rows, InRows(m));
  Matrix qkv = ws.TakeMatrix(x.rows, conv);
  Matrix mixed = ws.TakeMatrix(x.rows, value);
  ops::Linear(c.op, {.x = x, .w = &c.weights[kIn].matrix, .y = in});
  ops::CausalConv(c.op, {.shape = ShapeOf(m),
                         .sequences = c.sequences,
                         .cache = c.cache,
                         .x = in.columns(0, conv),
                         .weight = c.weights[kConv].vector,
                         .out = qkv});
  ops::LinearAttentionStep(c.op, {.shape = ShapeOf(m),
                                  .sequences = c.sequences,
                                  .cache = c.cache,
                                  .qkv = qkv,
                                  .a = in.columns(conv + value + heads, heads),
                                  .b = in.columns(conv + value, heads),
                                  .a_log = c.weights[kALog].vector,
                                  .dt_bias = c.weights[kDtBias].vector,
                                  .out = mixed});
  ops::GatedNorm(c.op, {.x = mixed,
                        .gate = in.columns(conv, value),
                        .weight = c.weights[kNorm].vector,
                        .head_dim = m.value_dim,
                        .activation = m.gate,
                        .eps = c.norm.eps,
                        .out = mixed});
  ops::Linear(c.op, {.x = mixed, .w = &c.weights[kOut].matrix, .y = out});
}

}  // namespace braid
