// The absorbed form: queries go through the key half of kv_b_proj into the latent space, attention
// reads the cache as it is, results go through the value half out of it. Some heads at a time.
#include <algorithm>

#include "model/mixers/latent_attention.h"

namespace braid {
namespace {

// Heads [first, first + count).
struct HeadGroup {
  int64_t first, count;
  Matrix absorbed;  // [tokens, count * RowWidth]
  Matrix latent;    // [tokens, count * latent_dim]
};

void RunHeads(const LatentAttention& m, const LayerContext& c, const LatentStep& step,
              const ops::SequenceIndex& sequences, const HeadGroup& group) {
  const int32_t heads = static_cast<int32_t>(group.count);
  const ops::AttentionShape shape = ShapeOf(m, heads, c.kv_dtype);
  const Matrix q = step.q.columns(group.first * QueryDim(m), heads * QueryDim(m));
  const ops::PackedMatrix key_up = HeadsOf(step.weights.key_up, group.first, group.count);
  const ops::PackedMatrix value_up = HeadsOf(step.weights.value_up, group.first, group.count);
  const Matrix gate = step.gate.data ? step.gate.columns(group.first, heads) : Matrix{};
  const Matrix mixed = step.mixed.columns(group.first * m.value_dim, heads * m.value_dim);
  const int64_t begin = sequences.spans[0].token_begin, count = sequences.tokens;
  ops::WriteLatent(c.op, {.shape = shape,
                          .sequences = sequences,
                          .cache = c.cache,
                          .row = group.first == 0 ? step.row : Matrix{},
                          .norm = step.weights.kv_norm.vector,
                          .eps = m.latent_eps,
                          .rotation = step.rotation,
                          .q = q,
                          .q_out = group.absorbed});
  ops::HeadLinear(c.op, {.x = q.some_rows(begin, count),
                         .x_step = QueryDim(m),
                         .w = &key_up,
                         .y = group.absorbed.some_rows(begin, count),
                         .y_step = RowWidth(m)});
  ops::Attention(c.op, {.shape = shape,
                        .sequences = sequences,
                        .cache = c.cache,
                        .q = group.absorbed,
                        .scale = m.score_scale,
                        .out = group.latent});
  ops::HeadLinear(c.op, {.x = group.latent.some_rows(begin, count),
                         .x_step = m.latent_dim,
                         .w = &value_up,
                         .gate = gate.data ? gate.some_rows(begin, count) : gate,
                         .y = mixed.some_rows(begin, count),
                         .y_step = m.value_dim});
}

}  // namespace

void RunAbsorbed(const LatentAttention& m, const LayerContext& c, const LatentStep& step,
                 const ops::SequenceIndex& sequences) {
  WorkspaceScope scope(*c.op.workspace);
  const int64_t tokens = step.q.rows, head_floats = tokens * (RowWidth(m) + m.latent_dim);
  const HeadsAtOnce at_once(m.heads, head_floats * static_cast<int64_t>(sizeof(float)));
  float* memory = reinterpret_cast<float*>(c.op.workspace->Take<std::byte>(at_once.bytes));
  for (int64_t first = 0; first < m.heads; first += at_once.count) {
    // Scratch of ops grows with tokens times heads, and fewer tokens may have more heads at once:
    // a head more than of these tokens bounds every smaller step.
    const int64_t more = c.op.workspace->measuring() ? 1 : 0;
    const int64_t count = std::min(at_once.count + more, m.heads - first);
    const int64_t queries = count * RowWidth(m), results = count * int64_t{m.latent_dim};
    RunHeads(m, c, step, sequences,
             {.first = first,
              .count = count,
              .absorbed = {memory, tokens, queries, queries},
              .latent = {memory + tokens * queries, tokens, results, results}});
  }
}

}  // namespace braid
