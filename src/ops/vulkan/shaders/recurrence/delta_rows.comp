// What the recurrence needs of its rows and not of its state: unit keys and queries, sums of
// decays, and the weights with which a row reads the rows before it. Workgroups: heads, chunks,
// spans; all of them at once. The weights are made in tiles of 4 rows x 4 earlier rows.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "delta.glsl"
layout(local_size_x = kThreads) in;

// 16 channels of 64 rows, four rows side by side.
const int kLine = kBlockTokens / 4 + 1;
shared vec4 keys_[kStaged * kLine], queries_[kStaged * kLine], decays_[kStaged * kLine];

int me;

void CopyEarlier(Rows rows, Places p, uint64_t page, int head) {
  Floats from = Floats(page + HeadBytes() * uint64_t(head));
  Floats from_g = Floats(page + DecayAt(head));
  for (int i = me; i < rows.first * dk; i += kThreads) SharedFloats(p.k).at[i] = from.at[i];
  for (int i = me; i < rows.first * dv; i += kThreads) {
    SharedFloats(p.q).at[i / dv * QueryWidth() + i % dv] = from.at[kBlockTokens * dk + i];
  }
  for (int i = me; i < rows.first * width; i += kThreads) SharedFloats(p.g).at[i] = from_g.at[i];
}

// Eight rows at a time, 32 invocations each.
void Normalise(Rows rows, Places p, int head) {
  const int lane = me % kSquareSums, first = me - lane;
  for (int row8 = rows.first; row8 < rows.end; row8 += kThreads / kSquareSums) {
    const int row = row8 + me / kSquareSums;
    const bool there = row < rows.end;
    Floats x = RowOf(a.qkv, rows.token + (there ? row : rows.first), a.qkv_stride);
    barrier();
    squares_[me] = SquareSum(x, KeyAt(head), lane);
    squares_[kThreads + me] = SquareSum(x, QueryAt(head), lane);
    barrier();
    if (!there) continue;
    const float k_scale = KeyScale(SumOf32(first));
    const float q_scale = QueryScale(SumOf32(kThreads + first));
    for (int d = lane; d < dk; d += kSquareSums) {
      SharedFloats(p.k).at[row * dk + d] = x.at[KeyAt(head) + d] * k_scale;
      SharedFloats(p.q).at[row * QueryWidth() + d] = x.at[QueryAt(head) + d] * q_scale;
    }
  }
}

void SumDecays(Rows rows, Places p, int head) {
  SharedFloats g = SharedFloats(p.g);
  for (int n = me + rows.first * width; n < rows.end * width; n += kThreads) {
    g.at[n] = LogDecay(rows.token + n / width, head, n % width);
  }
  memoryBarrierBuffer();
  barrier();
  for (int d = me; d < width; d += kThreads) {
    int row = rows.first;
    float sum = row > 0 ? g.at[(row - 1) * width + d] : 0.0;
    for (; row < rows.end; row += 8) {
      float own[8];
      [[unroll]] for (int i = 0; i < 8; ++i) {
        own[i] = row + i < rows.end ? g.at[(row + i) * width + d] : 0.0;
      }
      [[unroll]] for (int i = 0; i < 8; ++i) {
        sum = row + i > 0 ? own[i] + sum : own[i];
        if (row + i < rows.end) g.at[(row + i) * width + d] = sum;
      }
    }
  }
}

// Channel d of rows 4 n to 4 n + 3, of which [first, end) are there.
vec4 FourRows(uint64_t from, int row_floats, int n, int d, int first, int end) {
  vec4 four = vec4(0.0);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    const int row = 4 * n + i;
    if (row >= first && row < end) four[i] = SharedFloats(from).at[row * row_floats + d];
  }
  return four;
}

void main() {
  ReadShape();
  me = int(gl_LocalInvocationID.x);
  const int head = int(gl_WorkGroupID.x);
  Batch batch = Batch(a.batch);
  const Span span = Spans(batch.spans).at[a.first_span + int(gl_WorkGroupID.z)];
  const int turn = int(gl_WorkGroupID.y);
  const Rows rows = RowsOfChunk(span, span.start / kBlockTokens + a.first_chunk + turn);
  if (IsStep(span) || rows.first >= rows.end) return;
  const Places p =
      PlacesOf((int(gl_WorkGroupID.z) * a.chunks + turn) * value_heads + head);
  const uint64_t page = PageOf(batch, span, rows.chunk);
  if (rows.first > 0) CopyEarlier(rows, p, page, head);
  Normalise(rows, p, head);
  memoryBarrierBuffer();
  barrier();
  SumDecays(rows, p, head);
  memoryBarrierBuffer();
  barrier();
  if (rows.end < kBlockTokens) {
    Floats k = Floats(page + HeadBytes() * uint64_t(head)), g = Floats(page + DecayAt(head));
    for (int n = me + rows.first * dk; n < rows.end * dk; n += kThreads) {
      k.at[n] = SharedFloats(p.k).at[n];
    }
    for (int n = me + rows.first * width; n < rows.end * width; n += kThreads) {
      g.at[n] = SharedFloats(p.g).at[n];
    }
  }
  // Tiles on and below the diagonal, row by row: tile n is (i, j).
  int i4 = int((sqrt(float(8 * me + 1)) - 1.0) * 0.5);
  if ((i4 + 1) * (i4 + 2) / 2 <= me) ++i4;
  if (i4 * (i4 + 1) / 2 > me) --i4;
  const int j4 = me - i4 * (i4 + 1) / 2;
  const bool mine = 4 * i4 < rows.end && 4 * i4 + 3 >= rows.first;
  vec4 by_key[4], by_query[4], k_part[4], q_part[4];
  [[unroll]] for (int i = 0; i < 4; ++i) {
    by_key[i] = by_query[i] = k_part[i] = q_part[i] = vec4(0.0);
  }
  for (int d0 = 0; d0 < dk; d0 += kStaged) {
    const int d = me % kStaged, four = me / kStaged, there = min(kStaged, dk - d0);
    barrier();
    if (d < there) {
      keys_[d * kLine + four] = FourRows(p.k, dk, four, d0 + d, 0, rows.end);
      queries_[d * kLine + four] = FourRows(p.q, QueryWidth(), four, d0 + d, rows.first, rows.end);
      if (CHANNEL_DECAY != 0) {
        decays_[d * kLine + four] = FourRows(p.g, dk, four, d0 + d, 0, rows.end);
      }
    }
    barrier();
    for (int e4 = 0; mine && e4 < there; e4 += 4) {
      [[unroll]] for (int o = 0; o < 4; ++o) {
        const int e = e4 + o;
        const vec4 k = keys_[e * kLine + i4], q = queries_[e * kLine + i4];
        vec4 other = keys_[e * kLine + j4];
        vec4 g, other_g;
        if (CHANNEL_DECAY != 0) {
          g = decays_[e * kLine + i4];
          other_g = decays_[e * kLine + j4];
        }
        [[unroll]] for (int i = 0; i < 4; ++i) {
          vec4 faded = other;
          if (CHANNEL_DECAY != 0) faded = exp(vec4(g[i]) - other_g) * other;
          k_part[i] = fma(vec4(k[i]), faded, k_part[i]);
          q_part[i] = fma(vec4(q[i]), faded, q_part[i]);
        }
      }
    }
    const int next = d0 + kStaged;
    if (next % kWeightSum != 0 && next < dk) continue;
    [[unroll]] for (int i = 0; i < 4; ++i) {
      by_key[i] += k_part[i];
      by_query[i] += q_part[i];
      k_part[i] = q_part[i] = vec4(0.0);
    }
  }
  if (!mine) return;
  [[unroll]] for (int i = 0; i < 4; ++i) {
    const int row = 4 * i4 + i;
    if (row < rows.first || row >= rows.end) continue;
    if (CHANNEL_DECAY == 0) {
      const float own = SharedFloats(p.g).at[row];
      const vec4 fade = exp(vec4(own) - FourRows(p.g, 1, j4, 0, 0, rows.end));
      by_key[i] *= fade;
      by_query[i] *= fade;
    }
    Fours(p.k_weights).at[row * (kBlockTokens / 4) + j4] = by_key[i];
    Fours(p.q_weights).at[row * (kBlockTokens / 4) + j4] = by_query[i];
  }
}
