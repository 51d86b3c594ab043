// Multi-head latent attention: a token's cache row is its normed latent and a shared key.
#include "model/mixers/latent_attention.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/block.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/ranks.h"
#include "ops/vulkan/constants.h"

namespace braid {
namespace {

int64_t QueryRows(const LatentAttention& m) { return m.heads * QueryDim(m); }

WeightSpec MatrixSpec(const std::string& name, int64_t n, int64_t k, std::vector<RowUnits> units) {
  return {.name = name,
          .n = n,
          .k = k,
          .units = std::move(units),
          .sources = {{{name + ".weight", {n, k}, {}}}}};
}
WeightSpec NormSpecOf(const std::string& name, int64_t n) {
  return {
      .name = name, .use = WeightUse::kVector, .n = n, .sources = {{{name + ".weight", {n}, {}}}}};
}

// One half of kv_b_proj, whose rows are, per head, key_dim of keys, then value_dim of values: from
// the latent space to keys or values, or from queries as long as keys into the latent space.
enum class Half : uint8_t { kQueries, kKeys, kValues };
WeightSpec HalfOfKvB(const LatentAttention& m, const std::string& base, Half half) {
  const bool values = half == Half::kValues;
  const int64_t count = values ? m.value_dim : m.key_dim;
  const std::string stored = base + (m.split_kv_b ? values ? "v_b_proj" : "k_b_proj" : "kv_b_proj");
  // One name, however it is stored.
  const std::string name = base + (values                ? "kv_b_proj.values"
                                   : half == Half::kKeys ? "kv_b_proj.expanded.keys"
                                                         : "kv_b_proj.keys");
  WeightSpec spec{.name = name, .count = m.heads, .n = count, .k = m.latent_dim};
  if (half == Half::kQueries) std::swap(spec.n, spec.k);
  spec.units = {{ShardUnit::kHead, m.heads, spec.n}};
  if (m.split_kv_b) {
    const int64_t n = values ? m.value_dim : m.latent_dim, k = values ? m.latent_dim : m.key_dim;
    spec.transpose = half == Half::kKeys;
    spec.sources = {{{stored + ".weight", {m.heads, n, k}, {}}}};
    return spec;
  }
  const int64_t block = int64_t{m.key_dim} + m.value_dim;
  std::vector<RowRange> rows;
  for (int64_t h = 0; h < m.heads; ++h)
    rows.push_back({h * block + (values ? m.key_dim : 0), count});
  spec.transpose = half == Half::kQueries;
  spec.sources = {{{stored + ".weight", {m.heads * block, m.latent_dim}, rows}}};
  return spec;
}

// The queries [tokens, heads * (key_dim + shared_dim)].
Matrix Queries(const LatentAttention& m, const LatentAttentionWeights& w, const LayerContext& c,
               Matrix x) {
  Workspace& ws = *c.op.workspace;
  Matrix q = ws.TakeMatrix(x.rows, QueryRows(m));
  Matrix low = x;
  if (m.q_lora_rank > 0) {
    low = ws.TakeMatrix(x.rows, m.q_lora_rank);
    ops::Linear(c.op, {.x = x, .w = &w.q_down.matrix, .y = low});
    ops::RmsNorm(c.op, {.x = low, .weight = w.q_norm.vector, .eps = m.latent_eps, .out = low});
  }
  ops::Linear(c.op, {.x = low, .w = &w.q.matrix, .y = q});
  return q;
}

bool IsExpanded(const LatentAttention& m, int64_t tokens) {
  return m.expanded_tokens_min > 0 && tokens >= m.expanded_tokens_min;
}

}  // namespace

void ListWeights(const LatentAttention& m, const LayerPlace& place, LatentAttentionWeights& w,
                 WeightList& list) {
  const std::string base = place.prefix + m.module;
  const int64_t hidden = place.hidden, out = int64_t{m.heads} * m.value_dim;
  const std::vector<RowUnits> heads = {{ShardUnit::kHead, m.heads, QueryDim(m)}};
  if (m.q_lora_rank == 0) {
    list.push_back({&w.q, MatrixSpec(base + "q_proj", QueryRows(m), hidden, heads)});
  } else {
    list.push_back({&w.q_down, MatrixSpec(base + "q_a_proj", m.q_lora_rank, hidden, {})});
    list.push_back({&w.q_norm, NormSpecOf(base + "q_a_layernorm", m.q_lora_rank)});
    list.push_back({&w.q, MatrixSpec(base + "q_b_proj", QueryRows(m), m.q_lora_rank, heads)});
  }
  list.push_back({&w.kv_down, MatrixSpec(base + "kv_a_proj_with_mqa", RowWidth(m), hidden, {})});
  list.push_back({&w.kv_norm, NormSpecOf(base + "kv_a_layernorm", m.latent_dim)});
  list.push_back({&w.key_up, HalfOfKvB(m, base, Half::kQueries)});
  list.push_back({&w.value_up, HalfOfKvB(m, base, Half::kValues)});
  WeightSpec o{
      .name = base + "o_proj", .n = hidden, .k = out, .units = {{ShardUnit::kRow, hidden}}};
  for (const std::string& name : m.out_names) {
    o.sources.push_back({{base + name + ".weight", {hidden, out}, {}}});
  }
  list.push_back({&w.out, std::move(o)});
  if (m.head_gate) {
    list.push_back(
        {&w.gate, MatrixSpec(base + "g_proj", m.heads, hidden, {{ShardUnit::kHead, m.heads}})});
    list.back().spec.quantisable = Quantisable::kNever;
  }
  if (m.expanded_tokens_min > 0) {
    list.push_back({&w.expanded_keys, HalfOfKvB(m, base, Half::kKeys)});
  }
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
      m.q_lora_rank == 0 ? QueryRows(m) * hidden : m.q_lora_rank * (hidden + QueryRows(m));
  const int64_t out = (int64_t{m.heads} * m.value_dim + (m.head_gate ? m.heads : 0)) * hidden;
  const int64_t kv_b = int64_t{m.heads} * (int64_t{m.key_dim} + m.value_dim) * m.latent_dim;
  const double projections = static_cast<double>(queries + RowWidth(m) * hidden + out);
  const double weights = projections + static_cast<double>(kv_b);
  const double cached = static_cast<double>(shape.sequences * shape.context_tokens + shape.tokens);
  // kv_b meets every key in the expanded form, else every query. In the absorbed form a row of the
  // cache is key and value at once.
  const bool expanded = IsExpanded(m, static_cast<int64_t>(per_sequence));
  const double through_kv_b = static_cast<double>(kv_b) * (expanded ? cached : tokens);
  const int64_t channels = expanded ? QueryDim(m) + m.value_dim : RowWidth(m) + m.latent_dim;
  return {
      {.flops = 2 * (projections * tokens + through_kv_b),
       .bytes = shape.bytes_per_weight * weights,
       .weight_bytes = shape.bytes_per_weight * weights,
       .part = "attention projections"},
      {.flops = 2.0 * tokens * keys * m.heads * static_cast<double>(channels),
       .bytes = cached / kBlockTokens * static_cast<double>(CacheOf(m, shape.kv_dtype).block_bytes),
       .part = "attention"}};
}

void Forward(const LatentAttention& m, const LatentAttentionWeights& w, const LayerContext& c,
             Matrix x, Matrix out) {
  WorkspaceScope scope(*c.op.workspace);
  Workspace& ws = *c.op.workspace;
  LatentStep step{.weights = w, .q = Queries(m, w, c, x)};
  step.row = ws.TakeMatrix(x.rows, RowWidth(m));
  step.mixed = ws.TakeMatrix(x.rows, int64_t{m.heads} * m.value_dim);
  const float* inverse_frequency = ops::KeptConstants(
      c.op, m.rotary.dims / 2, [&](float* to) { FillInverseFrequencies(m.rotary, to); });
  step.rotation = {inverse_frequency, m.rotary.dims / 2, m.rotary.scale, m.rotary.interleaved};
  if (m.head_gate) {
    step.gate = ws.TakeMatrix(x.rows, m.heads);
    ops::Linear(c.op, {.x = x, .w = &w.gate.matrix, .y = step.gate});
  }
  ops::Linear(c.op, {.x = x, .w = &w.kv_down.matrix, .y = step.row});
  for (int32_t i = 0; i < c.sequences.count;) {
    const ops::SequenceSpan* first = c.sequences.spans + i;
    if (IsExpanded(m, first->token_count)) {
      RunExpanded(m, c, step, *first);
      ++i;
      continue;
    }
    ops::SequenceIndex absorbed{.spans = first};
    for (; i < c.sequences.count && !IsExpanded(m, c.sequences.spans[i].token_count); ++i) {
      ++absorbed.count;
      absorbed.tokens += c.sequences.spans[i].token_count;
    }
    RunAbsorbed(m, c, step, absorbed);
  }
  ops::DividedLinear(c.op, {.x = step.mixed, .w = &w.out.matrix, .y = out});
}

}  // namespace braid
