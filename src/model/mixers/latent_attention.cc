// Multi-head latent attention in the absorbed form: a token's cache row is
// its normed latent and a shared key; queries go through the key half of kv_b_proj into the latent
// space, results through its value half out of it. Weights: query projection (one, or down, norm
// and up), kv_a, its norm, key and value halves of kv_b per head, output, head gate.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/block.h"
#include "model/layer_context.h"
#include "ops/attention.h"
#include "ops/latent.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace braid {
namespace {

// Weights behind those of the query.
enum : size_t { kKvA, kKvNorm, kKeyUp, kValueUp, kOut, kGate };
size_t QueryWeights(const LatentAttention& m) { return m.query_rank > 0 ? 3 : 1; }

int64_t QueryDim(const LatentAttention& m) { return int64_t{m.key_dim} + m.shared_dim; }
int64_t QueryRows(const LatentAttention& m) { return m.heads * QueryDim(m); }
int64_t RowWidth(const LatentAttention& m) { return int64_t{m.latent_dim} + m.shared_dim; }
ops::AttentionShape ShapeOf(const LatentAttention& m, int32_t heads, DType kv_dtype) {
  return {heads, 1, static_cast<int32_t>(RowWidth(m)), kv_dtype, m.latent_dim};
}

WeightSpec MatrixSpec(const std::string& name, int64_t n, int64_t k, Shard shard) {
  return {
      .name = name, .n = n, .k = k, .shard = shard, .sources = {{{name + ".weight", {n, k}, {}}}}};
}
WeightSpec NormSpecOf(const std::string& name, int64_t n) {
  return {
      .name = name, .use = WeightUse::kVector, .n = n, .sources = {{{name + ".weight", {n}, {}}}}};
}

// One half of kv_b_proj, whose rows are, per head, key_dim of keys, then value_dim of values.
WeightSpec HalfOfKvB(const LatentAttention& m, const std::string& base, bool values) {
  if (m.split_kv_b) {
    const std::string name = base + (values ? "v_b_proj" : "k_b_proj");
    const int64_t n = values ? m.value_dim : m.latent_dim, k = values ? m.latent_dim : m.key_dim;
    return {.name = name,
            .count = m.heads,
            .n = n,
            .k = k,
            .shard = Shard::kRows,
            .sources = {{{name + ".weight", {m.heads, n, k}, {}}}}};
  }
  const int64_t block = int64_t{m.key_dim} + m.value_dim;
  const int64_t count = values ? m.value_dim : m.key_dim;
  std::vector<RowRange> rows;
  for (int64_t h = 0; h < m.heads; ++h)
    rows.push_back({h * block + (values ? m.key_dim : 0), count});
  WeightSpec spec{
      .name = base + (values ? "kv_b_proj.values" : "kv_b_proj.keys"),
      .count = m.heads,
      .n = values ? count : m.latent_dim,
      .k = values ? m.latent_dim : count,
      .shard = Shard::kRows,
      .transpose = !values,
      .sources = {{{base + "kv_b_proj.weight", {m.heads * block, m.latent_dim}, rows}}}};
  return spec;
}

// The queries [tokens, heads * (key_dim + shared_dim)].
Matrix Queries(const LatentAttention& m, const LayerContext& c, Matrix x) {
  Workspace& ws = *c.op.workspace;
  Matrix q = ws.TakeMatrix(x.rows, QueryRows(m));
  if (m.query_rank == 0) {
    ops::Linear(c.op, {.x = x, .w = &c.weights[0].matrix, .y = q});
    return q;
  }
  Matrix low = ws.TakeMatrix(x.rows, m.query_rank);
  ops::Linear(c.op, {.x = x, .w = &c.weights[0].matrix, .y = low});
  ops::RmsNorm(c.op, {.x = low, .weight = c.weights[1].vector, .eps = m.latent_eps, .out = low});
  ops::Linear(c.op, {.x = low, .w = &c.weights[2].matrix, .y = q});
  return q;
}

// Memory of the heads that are in the latent space at the same time. A head's result does not
// depend on which others are.
constexpr int64_t kHeadsBytes = int64_t{128} << 20;

// Heads [first, first + count): queries into the latent space, attention, results out of it.
struct HeadGroup {
  int64_t first, count;
  Matrix absorbed;  // [tokens, count * RowWidth]
  Matrix latent;    // [tokens, count * latent_dim]
};

ops::PackedMatrix HeadsOf(const Weight& weight, const HeadGroup& group) {
  ops::PackedMatrix w = weight.matrix;
  if (w.data) w.data += group.first * w.matrix_bytes();  // none while memory is measured
  w.count = group.count;
  return w;
}

// What all heads share.
struct LatentStep {
  std::span<const Weight> weights;
  Matrix q;
  Matrix row;  // raw cache rows; the first group writes them
  ops::Rotation rotation;
  Matrix gate;   // [tokens, heads] or empty
  Matrix mixed;  // [tokens, heads * value_dim]
};

void RunHeads(const LatentAttention& m, const LayerContext& c, const LatentStep& step,
              const HeadGroup& group) {
  const int32_t heads = static_cast<int32_t>(group.count);
  const ops::AttentionShape shape = ShapeOf(m, heads, c.kv_dtype);
  const Matrix q = step.q.columns(group.first * QueryDim(m), heads * QueryDim(m));
  const ops::PackedMatrix key_up = HeadsOf(step.weights[kKeyUp], group);
  const ops::PackedMatrix value_up = HeadsOf(step.weights[kValueUp], group);
  ops::WriteLatent(c.op, {.shape = shape,
                          .sequences = c.sequences,
                          .cache = c.cache,
                          .row = group.first == 0 ? step.row : Matrix{},
                          .norm = step.weights[kKvNorm].vector,
                          .eps = m.latent_eps,
                          .rotation = step.rotation,
                          .q = q,
                          .q_stride = QueryDim(m),
                          .q_offset = m.key_dim,
                          .q_out = group.absorbed});
  ops::HeadLinear(
      c.op,
      {.x = q, .x_step = QueryDim(m), .w = &key_up, .y = group.absorbed, .y_step = RowWidth(m)});
  ops::Attention(c.op, {.shape = shape,
                        .sequences = c.sequences,
                        .cache = c.cache,
                        .q = group.absorbed,
                        .scale = m.score_scale,
                        .out = group.latent});
  ops::HeadLinear(c.op, {.x = group.latent,
                         .x_step = m.latent_dim,
                         .w = &value_up,
                         .gate = step.gate.data ? step.gate.columns(group.first, heads) : Matrix{},
                         .y = step.mixed.columns(group.first * m.value_dim, heads * m.value_dim),
                         .y_step = m.value_dim});
}

}  // namespace

std::vector<WeightSpec> WeightsOf(const LatentAttention& m, const LayerPlace& place) {
  const std::string base = place.prefix + m.module;
  const int64_t hidden = place.hidden, out = int64_t{m.heads} * m.value_dim;
  std::vector<WeightSpec> specs;
  if (m.query_rank == 0) {
    specs.push_back(MatrixSpec(base + "q_proj", QueryRows(m), hidden, Shard::kRows));
  } else {
    specs.push_back(MatrixSpec(base + "q_a_proj", m.query_rank, hidden, Shard::kReplicated));
    specs.push_back(NormSpecOf(base + "q_a_layernorm", m.query_rank));
    specs.push_back(MatrixSpec(base + "q_b_proj", QueryRows(m), m.query_rank, Shard::kRows));
  }
  specs.push_back(MatrixSpec(base + "kv_a_proj_with_mqa", RowWidth(m), hidden, Shard::kReplicated));
  specs.push_back(NormSpecOf(base + "kv_a_layernorm", m.latent_dim));
  specs.push_back(HalfOfKvB(m, base, false));
  specs.push_back(HalfOfKvB(m, base, true));
  WeightSpec o{.name = base + "o_proj", .n = hidden, .k = out, .shard = Shard::kColumns};
  for (const std::string& name : m.out_names) {
    o.sources.push_back({{base + name + ".weight", {hidden, out}, {}}});
  }
  specs.push_back(std::move(o));
  if (m.head_gate) {
    specs.push_back(MatrixSpec(base + "g_proj", m.heads, hidden, Shard::kRows));
    specs.back().quantisable = Quantisable::kNever;
  }
  return specs;
}

CacheNeed CacheOf(const LatentAttention& m, DType kv_dtype) {
  return {.kind = GroupKind::kFull, .block_bytes = ShapeOf(m, m.heads, kv_dtype).head_bytes()};
}

std::vector<Cost> CostsOf(const LatentAttention& m, int64_t hidden, const StepShape& shape) {
  const double tokens = static_cast<double>(shape.tokens);
  const double per_sequence =
      shape.sequences > 0 ? tokens / static_cast<double>(shape.sequences) : 0.0;
  const double keys = static_cast<double>(shape.context_tokens) + (per_sequence + 1) / 2;
  const int64_t queries =
      m.query_rank == 0 ? QueryRows(m) * hidden : m.query_rank * (hidden + QueryRows(m));
  const int64_t kv =
      RowWidth(m) * hidden + int64_t{m.heads} * (int64_t{m.key_dim} + m.value_dim) * m.latent_dim;
  const int64_t out = (int64_t{m.heads} * m.value_dim + (m.head_gate ? m.heads : 0)) * hidden;
  const double weights = static_cast<double>(queries + kv + out);
  const double cached = static_cast<double>(shape.sequences * shape.context_tokens + shape.tokens);
  const double width = static_cast<double>(RowWidth(m));
  // A row of the cache is key and value at once.
  return {{.flops = 2 * weights * tokens, .bytes = shape.bytes_per_weight * weights},
          {.flops = 2.0 * tokens * keys * m.heads * (width + m.latent_dim),
           .bytes = cached / kBlockTokens *
                    static_cast<double>(CacheOf(m, shape.kv_dtype).block_bytes)}};
}

void Forward(const LatentAttention& m, const LayerContext& c, Matrix x, Matrix out) {
  WorkspaceScope scope(*c.op.workspace);
  Workspace& ws = *c.op.workspace;
  const std::span<const Weight> weights = c.weights.subspan(QueryWeights(m));
  LatentStep step{.weights = weights, .q = Queries(m, c, x)};
  step.row = ws.TakeMatrix(x.rows, RowWidth(m));
  step.mixed = ws.TakeMatrix(x.rows, int64_t{m.heads} * m.value_dim);
  float* inverse_frequency = ws.Take<float>(m.rotary.dims / 2);
  if (!ws.measuring()) FillInverseFrequencies(m.rotary, inverse_frequency);
  step.rotation = {inverse_frequency, m.rotary.dims / 2, m.rotary.scale, m.rotary.interleaved};
  if (m.head_gate) {
    step.gate = ws.TakeMatrix(x.rows, m.heads);
    ops::Linear(c.op, {.x = x, .w = &weights[kGate].matrix, .y = step.gate});
  }
  ops::Linear(c.op, {.x = x, .w = &weights[kKvA].matrix, .y = step.row});
  // Never less for more tokens, for the workspace is measured with the most of them.
  const int64_t head_floats = std::max<int64_t>(1, x.rows) * (RowWidth(m) + m.latent_dim);
  const int64_t floats =
      std::min(m.heads * head_floats, std::max(head_floats, kHeadsBytes / int64_t{sizeof(float)}));
  float* memory = ws.Take<float>(floats);
  const int64_t at_once = std::min<int64_t>(m.heads, floats / head_floats);
  for (int64_t first = 0; first < m.heads; first += at_once) {
    const int64_t count = std::min(at_once, m.heads - first);
    const int64_t queries = count * RowWidth(m), results = count * int64_t{m.latent_dim};
    RunHeads(m, c, step,
             {.first = first,
              .count = count,
              .absorbed = {memory, x.rows, queries, queries},
              .latent = {memory ? memory + x.rows * queries : nullptr, x.rows, results, results}});
  }
  ops::Linear(c.op, {.x = step.mixed, .w = &weights[kOut].matrix, .y = out});
}

}  // namespace braid
