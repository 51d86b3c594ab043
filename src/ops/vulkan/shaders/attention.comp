// Causal attention of one head of one token over its pages. Keys are taken a block at a time, at
// absolute positions; each block's maximum and sum are merged into the running ones in order. A run
// of the kernel takes kBlocksOfRun blocks; between runs a head's maximum and sum wait in `running`,
// its values in `out`. Workgroups: heads, tokens.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "batch.glsl"
#include "pages.glsl"
layout(push_constant) uniform Arguments {
  uint64_t batch, q, gate, out_, running;
  uint64_t slice, head_bytes, values_offset, scales_offset;
  int first_token, heads, kv_heads, head_dim;
  int value_dim, value_stride, q_stride, gate_stride;
  int gate_head, out_stride, flags_group;  // gate per head | skip first << 1 | group << 2
  float scale;
  int run;
} a;

const int kBlocksOfRun = 256;
const int kDimMax = 576;
shared float query[kDimMax];
shared float weights[kBlockTokens];
layout(constant_id = 2) const uint OWN = 1;  // fours of channels of a thread

void main() {
  const int me = int(gl_LocalInvocationID.x), head = int(gl_WorkGroupID.x);
  const int token = a.first_token + int(gl_WorkGroupID.y);
  Batch batch = Batch(a.batch);
  const Span span = SpanOfToken(batch, token);
  const int keys = span.start + token - span.token_begin + 1;
  const int first = (a.flags_group & 2) != 0 && keys > 1 ? 1 : 0;
  const int group = a.flags_group >> 2;
  const int kv_head = head / (a.heads / a.kv_heads);
  const uint64_t scale_bytes = a.values_offset == 0ul ? 0ul : uint64_t(kBlockTokens * 4);
  const int begin = a.run * kBlocksOfRun, blocks = (keys + kBlockTokens - 1) / kBlockTokens;
  if (begin >= blocks) return;
  const int end = min(blocks, begin + kBlocksOfRun);
  Floats q = RowOf(a.q, token, a.q_stride);
  Floats result = RowOf(a.out_, token, a.out_stride);
  Floats running = Floats(a.running + 8ul * uint64_t(int(gl_WorkGroupID.y) * a.heads + head));
  for (int c = me; c < a.head_dim; c += THREADS) query[c] = q.at[head * a.head_dim + c];
  barrier();
  vec4 own[OWN];
  float most = kNever, sum = 0.0;
  for (int i = 0; i < OWN; ++i) own[i] = vec4(0.0);
  if (begin > 0) {
    most = running.at[0];
    sum = running.at[1];
    for (int i = 0; i < OWN; ++i) {
      const int c = head * a.value_dim + 4 * (me + i * THREADS);
      if (4 * (me + i * THREADS) >= a.value_dim) break;
      [[unroll]] for (int j = 0; j < 4; ++j) own[i][j] = result.at[c + j];
    }
  }
  for (int block = begin; block < end; ++block) {
    const uint64_t page = BlockOf(batch, span, group, block) + a.slice +
                          uint64_t(kv_head) * a.head_bytes;
    const int count = min(kBlockTokens, keys - block * kBlockTokens);
    float score = kNever;
    if (me < count && block * kBlockTokens + me >= first) {
      const uint64_t row = page + uint64_t(me) * RowBytes(a.head_dim);
      float dot_ = 0.0;
      // Head sizes are multiples of 4: pairs of fours, and one that may be left.
      const int fours = a.head_dim / 4;
      for (int i = 0; i + 1 < fours; i += 2) {
        const vec4 k = FourAt(row, i), l = FourAt(row, i + 1);
        [[unroll]] for (int j = 0; j < 4; ++j) dot_ = fma(query[4 * i + j], k[j], dot_);
        [[unroll]] for (int j = 0; j < 4; ++j) dot_ = fma(query[4 * i + 4 + j], l[j], dot_);
      }
      if ((fours & 1) != 0) {
        const vec4 k = FourAt(row, fours - 1);
        [[unroll]] for (int j = 0; j < 4; ++j) dot_ = fma(query[4 * fours - 4 + j], k[j], dot_);
      }
      if (CACHE == kCacheI8) dot_ *= Floats(page + a.scales_offset).at[me];
      score = dot_ * a.scale;
    }
    const float block_most = MaxOfAll(score);
    if (block_most == kNever) continue;
    const float weight = score == kNever ? 0.0 : exp(score - block_most);
    const float block_sum = SumOfAll(weight);
    if (CACHE == kCacheI8 && me < count) {
      weights[me] = weight * Floats(page + a.scales_offset + scale_bytes).at[me];
    } else {
      weights[me] = weight;
    }
    barrier();
    const float new_most = max(most, block_most);
    const float keep = most == kNever ? 0.0 : exp(most - new_most);
    const float add = exp(block_most - new_most);
    sum = fma(sum, keep, block_sum * add);
    most = new_most;
    const uint64_t values = page + a.values_offset;
    for (int i = 0; i < OWN; ++i) {
      const int four = me + i * THREADS;
      if (4 * four >= a.value_dim) break;
      vec4 part = vec4(0.0);
      // What a skipped or missing slot holds is not looked at: it may be anything.
      const int from = max(first - block * kBlockTokens, 0);
      for (int t4 = 0; t4 < count; t4 += 4) {
        [[unroll]] for (int j = 0; j < 4; ++j) {
          const int t = t4 + j;
          if (t < from || t >= count) continue;
          const vec4 value = FourAt(values + uint64_t(t) * RowBytes(a.value_stride), four);
          part = fma(vec4(weights[t]), value, part);
        }
      }
      own[i] = fma(own[i], vec4(keep), part * add);
    }
    barrier();
  }
  const bool last = end == blocks;
  if (!last && me == 0) {
    running.at[0] = most;
    running.at[1] = sum;
  }
  Floats gate = RowOf(a.gate, token, a.gate_stride);
  for (int i = 0; i < OWN; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int c = 4 * (me + i * THREADS) + j;
      if (c >= a.value_dim) break;
      float value = last ? own[i][j] / sum : own[i][j];
      if (last && a.gate != 0) {
        value *= Sigmoid(gate.at[head * a.gate_head + ((a.flags_group & 1) != 0 ? 0 : c)]);
      }
      result.at[head * a.value_dim + c] = value;
    }
  }
}
