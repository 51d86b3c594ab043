// The recurrence for up to four rows of a chunk that they do not complete (ops/linear_attention.h).
// Workgroups: 64 columns, heads, spans. Earlier rows are read where they lie in the page. Each has
// all weights of a row: an invocation for 32 channels of an earlier row. Then each 32 invocations,
// two columns each, have 32 channels of the state and eight rows, and the first 32 add what they
// have found.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "delta.glsl"
layout(local_size_x = kThreads) in;

const int kParts = kThreads / kColumns;  // of the invocations
const int kStateSums = kKeysMax / kStateSum, kKeyFours = kKeysMax / 4, kSumFours = kWeightSum / 4;
shared vec4 k_[kStepRows * kKeyFours], q_[kKeyFours], faded_k[kKeyFours], faded_q[kKeyFours];
shared float g_[kStepRows * kKeysMax];
shared vec2 u_[kStepRows * kColumns];
shared float k_weights[kBlockTokens], q_weights[kBlockTokens];
// Of weights, for k and q: [sum][row]; of what is read: [sums of the state, then of rows][columns].
shared vec2 parts_[kStateSums * kBlockTokens];
shared vec4 reads_[(kStateSums + kParts) * kColumns];
shared float scales_[2];

int me;

void LoadRow(Rows rows, int row, int head, Floats page_g) {
  const int n = row - rows.first;
  Floats x = RowOf(a.qkv, rows.token + row, a.qkv_stride);
  if (me < 2 * kSquareSums) {
    squares_[me] = SquareSum(x, me < kSquareSums ? KeyAt(head) : QueryAt(head), me % kSquareSums);
  }
  for (int d = me; d < width; d += kThreads) {
    precise float g = LogDecay(rows.token + row, head, d);
    if (row > 0) g += n > 0 ? g_[(n - 1) * kKeysMax + d] : page_g.at[(row - 1) * width + d];
    g_[n * kKeysMax + d] = g;
  }
  barrier();
  for (int which = me; which < 2; which += kThreads) {
    const float squares = SumOf32(which * kSquareSums);
    scales_[which] = which == 0 ? KeyScale(squares) : QueryScale(squares);
  }
  barrier();
  for (int d4 = me; d4 < dk / 4; d4 += kThreads) {
    vec4 k, q, g;
    [[unroll]] for (int i = 0; i < 4; ++i) {
      k[i] = x.at[KeyAt(head) + 4 * d4 + i] * scales_[0];
      q[i] = x.at[QueryAt(head) + 4 * d4 + i] * scales_[1];
      g[i] = g_[n * kKeysMax + (CHANNEL_DECAY != 0 ? 4 * d4 + i : 0)];
    }
    const vec4 e = exp(g);
    k_[n * kKeyFours + d4] = k;
    q_[d4] = q;
    faded_k[d4] = e * k;
    faded_q[d4] = e * q;
  }
  barrier();
}

// Channels d0 to d0 + 31 of row j.
void LoadFours(Floats rows, int j, int d0, out vec4 fours[kSumFours]) {
  [[unroll]] for (int i = 0; i < kSumFours; ++i) {
    const int d = min(d0 + 4 * i, dk - 4);
    fours[i] = Fours(uint64_t(rows)).at[(j * dk + d) / 4];
  }
}

void WeighPart(int n, int j, int sum, vec4 key[kSumFours], vec4 key_g[kSumFours]) {
  const int d0 = sum * kWeightSum;
  float by_key = 0.0, by_query = 0.0;
  [[unroll]] for (int i = 0; i < kSumFours; ++i) {
    const int d = d0 + 4 * i;
    if (d >= dk) continue;
    vec4 faded = key[i];
    if (CHANNEL_DECAY != 0) {
      const int at = n * kKeysMax + d;
      faded = exp(vec4(g_[at], g_[at + 1], g_[at + 2], g_[at + 3]) - key_g[i]) * faded;
    }
    const vec4 k = k_[n * kKeyFours + d / 4], q = q_[d / 4];
    [[unroll]] for (int o = 0; o < 4; ++o) {
      by_key = fma(k[o], faded[o], by_key);
      by_query = fma(q[o], faded[o], by_query);
    }
  }
  parts_[sum * kBlockTokens + j] = vec2(by_key, by_query);
}

// first_key: of row me % 64 and sum me / 64, if that is an earlier row.
void Weigh(Rows rows, int row, vec4 first_key[kSumFours], Floats page_k, Floats page_g) {
  const int j = me % kBlockTokens, turns = kThreads / kBlockTokens, turn = me / kBlockTokens;
  const int own = row - rows.first;
  vec4 key_g[kSumFours];
  ONLY_IF(j < rows.first && turn * kWeightSum < dk) {
    if (CHANNEL_DECAY != 0) LoadFours(page_g, j, turn * kWeightSum, key_g);
    WeighPart(own, j, turn, first_key, key_g);
  }
  for (int sum = turn + turns; j < rows.first && sum * kWeightSum < dk; sum += turns) {
    vec4 key[kSumFours];
    LoadFours(page_k, j, sum * kWeightSum, key);
    if (CHANNEL_DECAY != 0) LoadFours(page_g, j, sum * kWeightSum, key_g);
    WeighPart(own, j, sum, key, key_g);
  }
  // The step's own, by the last invocations, which have the least of the others.
  const int sums = (dk + kWeightSum - 1) / kWeightSum;
  for (int n = kThreads - 1 - me; n < (own + 1) * sums; n += kThreads) {
    const int sum = n % sums, other = n / sums;
    vec4 key[kSumFours];
    [[unroll]] for (int i = 0; i < kSumFours; ++i) {
      const int d = min(sum * kWeightSum + 4 * i, dk - 4), at = other * kKeysMax + d;
      key[i] = k_[other * kKeyFours + d / 4];
      if (CHANNEL_DECAY != 0) key_g[i] = vec4(g_[at], g_[at + 1], g_[at + 2], g_[at + 3]);
    }
    WeighPart(own, rows.first + other, sum, key, key_g);
  }
  barrier();
  for (int other = me; other <= row; other += kThreads) {
    vec2 weight = vec2(0.0);
    for (int sum = 0; sum < sums; ++sum) weight += parts_[sum * kBlockTokens + other];
    if (CHANNEL_DECAY == 0) {
      const float g = other < rows.first ? page_g.at[other] : g_[(other - rows.first) * kKeysMax];
      weight *= exp(g_[own * kKeysMax] - g);
    }
    k_weights[other] = weight.x;
    q_weights[other] = weight.y;
  }
  barrier();
}

void main() {
  ReadShape();
  me = int(gl_LocalInvocationID.x);
  const int lane = me % kColumns, part = me / kColumns, head = int(gl_WorkGroupID.y);
  const int column = int(gl_WorkGroupID.x) * 2 * kColumns + lane, column2 = column + kColumns;
  const bool mine = column < dv, mine2 = column2 < dv;
  Batch batch = Batch(a.batch);
  const Span span = Spans(batch.spans).at[a.first_span + int(gl_WorkGroupID.z)];
  if (!IsStep(span)) return;
  const Rows rows = RowsOfChunk(span, span.start / kBlockTokens);
  const uint64_t page = PageOf(batch, span, rows.chunk);
  Floats page_k = Floats(page + HeadBytes() * uint64_t(head));
  Floats page_u = Floats(uint64_t(page_k) + uint64_t(4 * kBlockTokens * dk));
  Floats page_g = Floats(page + DecayAt(head));
  Floats before = Floats(StateBefore(batch, span, 0, rows.chunk, head));
  const bool some = uint64_t(before) != 0 && part * kStateSum < dk;
  // What does not depend on the rows of this step: the state, u of earlier rows, their keys.
  vec2 state[kStateSum], u[kRowSum];
  vec4 key[kSumFours];
  ONLY_IF(some && mine) {
    [[unroll]] for (int i = 0; i < kStateSum; ++i) {
      const int at = min(part * kStateSum + i, dk - 1) * dv;
      state[i] = vec2(before.at[at + column], before.at[at + (mine2 ? column2 : column)]);
    }
  }
  ONLY_IF(part * kRowSum < rows.first && mine) {
    [[unroll]] for (int i = 0; i < kRowSum; ++i) {
      const int at = min(part * kRowSum + i, rows.first - 1) * dv;
      u[i] = vec2(page_u.at[at + column], page_u.at[at + (mine2 ? column2 : column)]);
    }
  }
  ONLY_IF(me % kBlockTokens < rows.first) {
    LoadFours(page_k, me % kBlockTokens, me / kBlockTokens * kWeightSum, key);
  }
  for (int row = rows.first; row < rows.end; ++row) {
    const int n = row - rows.first;
    vec2 value = vec2(0.0);
    float beta = 1.0;
    ONLY_IF(part == 0) {
      if (mine) value.x = ValueAt(rows.token + row, head, column);
      if (mine2) value.y = ValueAt(rows.token + row, head, column2);
      beta = Update(rows.token + row, head);
    }
    LoadRow(rows, row, head, page_g);
    Weigh(rows, row, key, page_k, page_g);
    ONLY_IF(some) {
      vec2 by_key = vec2(0.0), by_query = vec2(0.0);
      [[unroll]] for (int i = 0; i < kStateSum; ++i) {
        const int d = part * kStateSum + i;
        if (d >= dk) continue;
        by_key = fma(vec2(faded_k[d / 4][i % 4]), state[i], by_key);
        by_query = fma(vec2(faded_q[d / 4][i % 4]), state[i], by_query);
      }
      reads_[part * kColumns + lane] = vec4(by_key, by_query);
    }
    ONLY_IF(part * kRowSum <= row) {
      vec2 by_key = vec2(0.0), by_query = vec2(0.0);
      [[unroll]] for (int i = 0; i < kRowSum; ++i) {
        const int j = part * kRowSum + i;
        if (j >= row) continue;
        if (j >= rows.first) u[i] = u_[(j - rows.first) * kColumns + lane];
        by_key = fma(vec2(k_weights[j]), u[i], by_key);
        by_query = fma(vec2(q_weights[j]), u[i], by_query);
      }
      reads_[(kStateSums + part) * kColumns + lane] = vec4(by_key, by_query);
    }
    barrier();
    ONLY_IF(part == 0) {
      vec4 all = vec4(0.0);
      for (int i = 0; uint64_t(before) != 0 && i * kStateSum < dk; ++i) {
        all += reads_[i * kColumns + lane];
      }
      for (int i = 0; i <= row / kRowSum; ++i) all += reads_[(kStateSums + i) * kColumns + lane];
      precise vec2 fresh = beta * (value - all.xy);
      if (add) fresh = value;
      u_[n * kColumns + lane] = fresh;
      const vec2 result = fma(vec2(q_weights[row]), fresh, all.zw);
      Floats result_row = RowOf(a.out_, rows.token + row, a.out_stride);
      if (mine) {
        page_u.at[row * dv + column] = fresh.x;
        result_row.at[head * dv + column] = result.x;
      }
      if (mine2) {
        page_u.at[row * dv + column2] = fresh.y;
        result_row.at[head * dv + column2] = result.y;
      }
    }
    barrier();
  }
  // No workgroup reads these rows.
  if (gl_WorkGroupID.x != 0) return;
  for (int n = 0; n < rows.end - rows.first; ++n) {
    const int row = rows.first + n;
    for (int d4 = me; d4 < dk / 4; d4 += kThreads) {
      Fours(uint64_t(page_k)).at[row * dk / 4 + d4] = k_[n * kKeyFours + d4];
    }
    for (int d = me; d < width; d += kThreads) page_g.at[row * width + d] = g_[n * kKeysMax + d];
  }
}
