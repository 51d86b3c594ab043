// The recurrence of linear attention (ops/linear_attention.h): one chunk of one value head of a
// sequence per workgroup. A row is computed from the state at its chunk's start and the rows of the chunk before
// it, in one order, whether they come from the page or from this step. The rows of the chunk in
// progress stand in scratch, because a page holds rows or a state. A chunk without a page lies
// whole inside its span, so where its state is carried to the next chunk is the span's alone
// (`carry`, by every 64th token). Workgroups: pairs of span and head, from first_item on.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "batch.glsl"
#include "state.glsl"
layout(push_constant) uniform Arguments {
  uint64_t batch, qkv, decay, update;
  uint64_t rates, bias;  // a_log, or constant decays; dt_bias
  uint64_t out_, scratch, carry, slice;
  int first_span, first_item, chunk;
  int key_heads, value_heads, dims;  // key_dim | value_dim << 16
  int qkv_stride, decay_stride, update_stride, out_stride;
  int group_rule;  // decay form | add << 2 | cache group << 3
  float lower_bound;
} a;

const int kKeysMax = 256;
shared float k_[kKeysMax], q_[kKeysMax];    // the row
shared float ek[kKeysMax], eq[kKeysMax];    // times exp of its decay
shared float g_[kKeysMax];                  // its decay: sums of logs
shared float k_weights[kBlockTokens], q_weights[kBlockTokens];

int dk, dv, width;

float LogDecay(int token, int head, int d) {
  const int form = a.group_rule & 3;
  if (form == 2) return Floats(a.rates).at[head];
  const float x = RowOf(a.decay, token, a.decay_stride).at[head * width + d] +
                  Floats(a.bias).at[head * width + d];
  const float rate = exp(Floats(a.rates).at[head]);
  if (form == 1) return a.lower_bound / (1.0 + exp(-rate * x));
  const float softplus = x > 20.0 ? x : x < -15.0 ? exp(x) : log(1.0 + exp(x));
  return -rate * softplus;
}

// Lengths of k and q; the row's own decay behind those of the rows before it.
void LoadRow(int token, int head, int row, Floats rows_g) {
  const int me = int(gl_LocalInvocationID.x);
  const bool add = (a.group_rule & 4) != 0;
  const int key_head = head / (a.value_heads / a.key_heads);
  Floats q = RowOf(a.qkv, token, a.qkv_stride);
  const float query_scale = 1.0 / sqrt(float(dk));
  float k_squares = 0.0, q_squares = 0.0;
  for (int d = me; d < dk; d += THREADS) {
    const float qd = q.at[key_head * dk + d], kd = q.at[(a.key_heads + key_head) * dk + d];
    q_squares = fma(qd, qd, q_squares);
    k_squares = fma(kd, kd, k_squares);
    q_[d] = qd;
    k_[d] = kd;
  }
  float q_scale = query_scale, k_scale = 1.0;
  if (!add) {
    q_scale /= sqrt(SumOfAll(q_squares) + 1e-6);
    k_scale /= sqrt(SumOfAll(k_squares) + 1e-6);
  }
  for (int d = me; d < width; d += THREADS) {
    float g = LogDecay(token, head, d);
    if (row > 0) g += rows_g.at[(row - 1) * width + d];
    g_[d] = g;
    rows_g.at[row * width + d] = g;
  }
  barrier();
  for (int d = me; d < dk; d += THREADS) {
    q_[d] *= q_scale;
    k_[d] *= k_scale;
    const float e = exp(g_[CHANNEL_DECAY != 0 ? d : 0]);
    eq[d] = e * q_[d];
    ek[d] = e * k_[d];
  }
  memoryBarrierBuffer();
  barrier();
}

// What the row's key and query read of every earlier row of the chunk; of the row itself too.
void Weigh(int row, Floats rows_k, Floats rows_g) {
  const int j = int(gl_LocalInvocationID.x);
  if (j > row) return;
  float by_key = 0.0, by_query = 0.0;
  if (j == row) {
    for (int d4 = 0; d4 < dk; d4 += 4) {
      [[unroll]] for (int i = 0; i < 4; ++i) by_query = fma(q_[d4 + i], k_[d4 + i], by_query);
    }
  } else if (CHANNEL_DECAY != 0) {
    for (int d4 = 0; d4 < dk; d4 += 4) {
      [[unroll]] for (int i = 0; i < 4; ++i) {
        const int d = d4 + i;
        const float faded = exp(g_[d] - rows_g.at[j * dk + d]) * rows_k.at[j * dk + d];
        by_key = fma(k_[d], faded, by_key);
        by_query = fma(q_[d], faded, by_query);
      }
    }
  } else {
    for (int d4 = 0; d4 < dk; d4 += 4) {
      [[unroll]] for (int i = 0; i < 4; ++i) {
        const int d = d4 + i;
        const float k = rows_k.at[j * dk + d];
        by_key = fma(k_[d], k, by_key);
        by_query = fma(q_[d], k, by_query);
      }
    }
    const float fade = exp(g_[0] - rows_g.at[j]);
    by_key *= fade;
    by_query *= fade;
  }
  k_weights[j] = by_key;
  q_weights[j] = by_query;
}

void main() {
  const int me = int(gl_LocalInvocationID.x);
  dk = a.dims & 0xffff;
  dv = a.dims >> 16;
  width = CHANNEL_DECAY != 0 ? dk : 1;
  const bool add = (a.group_rule & 4) != 0;
  const int group = a.group_rule >> 3;
  Batch batch = Batch(a.batch);
  const uint64_t row_bytes = uint64_t(4 * kBlockTokens * (dk + dv + width));
  const uint64_t scratch = a.scratch + uint64_t(gl_WorkGroupID.x) * row_bytes;
  Floats rows_k = Floats(scratch);
  Floats rows_u = Floats(scratch + uint64_t(4 * kBlockTokens * dk));
  Floats rows_g = Floats(scratch + uint64_t(4 * kBlockTokens * (dk + dv)));
  const int item = a.first_item + int(gl_WorkGroupID.x), head = item % a.value_heads;
  const Span span = Spans(batch.spans).at[a.first_span + item / a.value_heads];
  // The chunk's tokens: positions [begin, end).
  const int chunk = span.start / kBlockTokens + a.chunk;
  const int begin = max(span.start, chunk * kBlockTokens);
  const int end = min(span.start + span.token_count, (chunk + 1) * kBlockTokens);
  if (begin >= end) return;
  const uint64_t head_bytes = uint64_t(4 * max(dk * dv, kBlockTokens * (dk + dv)));
  const uint64_t head_at = uint64_t(head) * head_bytes;
  const uint64_t decay_at = head_bytes * uint64_t(a.value_heads) +
                            uint64_t(4 * kBlockTokens * width) * uint64_t(head);
  const uint64_t carried = a.carry + uint64_t(4 * dk * dv) *
                                         uint64_t(span.token_begin / kBlockTokens * a.value_heads +
                                                  head);
  const uint64_t page = SliceOf(batch, span, group, a.slice, chunk);
  uint64_t before = 0;  // the state at the chunk's start
  if (chunk > 0) {
    before = SliceOf(batch, span, group, a.slice, chunk - 1);
    before = before == 0 ? carried : before + head_at;
  }
  const int first_row = begin % kBlockTokens;
  if (first_row > 0) {
    Floats from = Floats(page + head_at), from_g = Floats(page + decay_at);
    for (int i = me; i < first_row * dk; i += THREADS) rows_k.at[i] = from.at[i];
    for (int i = me; i < first_row * dv; i += THREADS) {
      rows_u.at[i] = from.at[kBlockTokens * dk + i];
    }
    for (int i = me; i < first_row * width; i += THREADS) rows_g.at[i] = from_g.at[i];
  }
  memoryBarrierBuffer();
  barrier();
  Floats old = Floats(before);
  for (int position = begin; position < end; ++position) {
    const int token = span.token_begin + position - span.start, row = position % kBlockTokens;
    LoadRow(token, head, row, rows_g);
    Weigh(row, rows_k, rows_g);
    float beta = 1.0;
    if (!add) beta = Sigmoid(RowOf(a.update, token, a.update_stride).at[head]);
    Floats v = RowOf(a.qkv, token, a.qkv_stride);
    Floats result = RowOf(a.out_, token, a.out_stride);
    barrier();
    for (int d = me; d < dk; d += THREADS) rows_k.at[row * dk + d] = k_[d];
    for (int c = me; c < dv; c += THREADS) {
      float memory = 0.0, sum = 0.0;
      if (before != 0) {
        for (int d4 = 0; d4 < dk; d4 += 4) {
          [[unroll]] for (int i = 0; i < 4; ++i) {
            const int d = d4 + i;
            const float s = old.at[d * dv + c];
            memory = fma(ek[d], s, memory);
            sum = fma(eq[d], s, sum);
          }
        }
      }
      for (int j4 = 0; j4 < row; j4 += 4) {
        [[unroll]] for (int i = 0; i < 4; ++i) {
          const int j = j4 + i;
          if (j >= row) continue;
          const float u = rows_u.at[j * dv + c];
          memory = fma(k_weights[j], u, memory);
          sum = fma(q_weights[j], u, sum);
        }
      }
      const float value = v.at[2 * a.key_heads * dk + head * dv + c];
      const float u = add ? value : beta * (value - memory);
      rows_u.at[row * dv + c] = u;
      result.at[head * dv + c] = fma(q_weights[row], u, sum);
    }
    memoryBarrierBuffer();
    barrier();
  }
  if (end % kBlockTokens == 0) {
    // Keys fade to the chunk's end, then the state takes them in.
    for (int n = me; n < kBlockTokens * dk; n += THREADS) {
      const int j = n / dk, d = CHANNEL_DECAY != 0 ? n % dk : 0;
      rows_k.at[n] *= exp(g_[d] - rows_g.at[j * width + d]);
    }
    memoryBarrierBuffer();
    barrier();
    Floats kept = Floats(page == 0 ? carried : page + head_at);
    for (int c = me; c < dv; c += THREADS) {
      for (int d = 0; d < dk; ++d) {
        float s = 0.0;
        if (before != 0) s = exp(g_[CHANNEL_DECAY != 0 ? d : 0]) * old.at[d * dv + c];
        for (int j8 = 0; j8 < kBlockTokens; j8 += 8) {
          [[unroll]] for (int i = 0; i < 8; ++i) {
            const int j = j8 + i;
            s = fma(rows_k.at[j * dk + d], rows_u.at[j * dv + c], s);
          }
        }
        kept.at[d * dv + c] = s;
      }
    }
    return;
  }
  Floats to = Floats(page + head_at), to_g = Floats(page + decay_at);
  for (int n = me + first_row * dk; n < (end % kBlockTokens) * dk; n += THREADS) {
    to.at[n] = rows_k.at[n];
  }
  for (int n = me + first_row * dv; n < (end % kBlockTokens) * dv; n += THREADS) {
    to.at[kBlockTokens * dk + n] = rows_u.at[n];
  }
  for (int n = me + first_row * width; n < (end % kBlockTokens) * width; n += THREADS) {
    to_g.at[n] = rows_g.at[n];
  }
}
