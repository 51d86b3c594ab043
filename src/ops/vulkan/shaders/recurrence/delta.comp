// The recurrence over chunks (ops/linear_attention.h), after delta_rows.comp: columns of the state
// do not mix. Workgroups: 32 columns, heads, spans. Each takes its chunks one after another; of a
// chunk, each 32 invocations have eight rows, an invocation a column: they read the state for all
// rows, then u of one eight after another becomes known and is read by the eights behind it; then
// the state takes the chunk's rows in. The state of a chunk without a page is carried in scratch.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "delta.glsl"
layout(local_size_x = kThreads) in;

const int kLine = kBlockTokens / 4 + 1, kRows4 = kBlockTokens / 4;
const int kTaken = 32;  // channels of keys at a time that the state takes in
// Keys and queries of 16 channels, times their decays; or 32 channels of keys, faded to the end.
shared vec4 staged_[2 * kStaged * kLine];
shared float state_[kStaged * kColumns];
shared float u_[kBlockTokens * kColumns];
shared float decay_[kBlockTokens], fade_[kBlockTokens], beta_[kBlockTokens];

int me, lane, eight, column;
bool mine;  // the column is there
float memory_[kRowSum], sum_[kRowSum];

// What the rows of this step read of the state at the chunk's start.
void ReadState(Rows rows, Places p, SharedFloats old) {
  const bool some = kRowSum * eight < rows.end && kRowSum * (eight + 1) > rows.first;
  vec4 k0 = vec4(0.0), k1 = vec4(0.0), q0 = vec4(0.0), q1 = vec4(0.0);
  for (int d0 = 0; d0 < dk; d0 += kStaged) {
    const int there = min(kStaged, dk - d0), d = me % kStaged, four = me / kStaged;
    barrier();
    if (d < there) {
      vec4 k = vec4(0.0), q = vec4(0.0);
      [[unroll]] for (int i = 0; i < 4; ++i) {
        const int row = 4 * four + i;
        if (row < rows.first || row >= rows.end) continue;
        const float e =
            CHANNEL_DECAY != 0 ? exp(Floats(p.g).at[row * dk + d0 + d]) : decay_[row];
        k[i] = e * Floats(p.k).at[row * dk + d0 + d];
        q[i] = e * Floats(p.q).at[row * QueryWidth() + d0 + d];
      }
      staged_[d * kLine + four] = k;
      staged_[(kStaged + d) * kLine + four] = q;
    }
    for (int n = eight; n < there; n += kThreads / kColumns) {
      state_[n * kColumns + lane] = mine ? old.at[(d0 + n) * dv + column] : 0.0;
    }
    barrier();
    for (int e4 = 0; some && e4 < there; e4 += 4) {
      [[unroll]] for (int o = 0; o < 4; ++o) {
        const vec4 s = vec4(state_[(e4 + o) * kColumns + lane]);
        const int at = (e4 + o) * kLine + 2 * eight, q_at = at + kStaged * kLine;
        k0 = fma(staged_[at], s, k0);
        k1 = fma(staged_[at + 1], s, k1);
        q0 = fma(staged_[q_at], s, q0);
        q1 = fma(staged_[q_at + 1], s, q1);
      }
    }
    const int next = d0 + kStaged;
    if (next % kStateSum != 0 && next < dk) continue;
    [[unroll]] for (int i = 0; i < 4; ++i) {
      memory_[i] += k0[i];
      memory_[4 + i] += k1[i];
      sum_[i] += q0[i];
      sum_[4 + i] += q1[i];
    }
    k0 = k1 = q0 = q1 = vec4(0.0);
  }
}

// The own eight rows, when all before them are known.
void Solve(Rows rows, Places p, int head, uint64_t page) {
  float u[kRowSum];
  [[unroll]] for (int i = 0; i < kRowSum; ++i) {
    const int row = kRowSum * eight + i;
    u[i] = 0.0;
    if (row < rows.first) {
      if (mine) u[i] = Floats(p.q).at[row * QueryWidth() + column];
    } else if (row < rows.end) {
      float by_key = 0.0, by_query = 0.0;
      const int at = row * kBlockTokens + kRowSum * eight;
      [[unroll]] for (int j = 0; j < i; ++j) {
        by_key = fma(Floats(p.k_weights).at[at + j], u[j], by_key);
        by_query = fma(Floats(p.q_weights).at[at + j], u[j], by_query);
      }
      const float value = mine ? ValueAt(rows.token + row, head, column) : 0.0;
      precise float known = memory_[i] + by_key;
      precise float fresh = beta_[row] * (value - known);
      u[i] = add ? value : fresh;
      precise float sum = sum_[i] + by_query;
      if (mine) {
        RowOf(a.out_, rows.token + row, a.out_stride).at[head * dv + column] =
            fma(Floats(p.q_weights).at[at + i], u[i], sum);
        if (rows.end < kBlockTokens) {
          Floats(page).at[kBlockTokens * dk + row * dv + column] = u[i];
        }
      }
    }
    u_[row * kColumns + lane] = u[i];
  }
}

// Another eight rows, which lie before the own.
void ReadRows(Places p, int other) {
  float u[kRowSum];
  [[unroll]] for (int j = 0; j < kRowSum; ++j) u[j] = u_[(kRowSum * other + j) * kColumns + lane];
  [[unroll]] for (int i = 0; i < kRowSum; ++i) {
    const int at = (kRowSum * eight + i) * kRows4 + 2 * other;
    const vec4 k0 = Fours(p.k_weights).at[at], k1 = Fours(p.k_weights).at[at + 1];
    const vec4 q0 = Fours(p.q_weights).at[at], q1 = Fours(p.q_weights).at[at + 1];
    float by_key = 0.0, by_query = 0.0;
    [[unroll]] for (int j = 0; j < 4; ++j) {
      by_key = fma(k0[j], u[j], by_key);
      by_query = fma(q0[j], u[j], by_query);
    }
    [[unroll]] for (int j = 0; j < 4; ++j) {
      by_key = fma(k1[j], u[4 + j], by_key);
      by_query = fma(q1[j], u[4 + j], by_query);
    }
    memory_[i] += by_key;
    sum_[i] += by_query;
  }
}

// Keys fade to the chunk's end, then the state takes them in, row by row.
void TakeIn(Places p, uint64_t before, uint64_t kept) {
  Floats g = Floats(p.g);
  const int last = (kBlockTokens - 1) * width;
  for (int d0 = 0; d0 < dk; d0 += kTaken) {
    barrier();
    for (int n = me; n < kBlockTokens * kTaken / 4; n += kThreads) {
      const int row = n / (kTaken / 4), d = d0 + n % (kTaken / 4) * 4;
      if (d >= dk) continue;
      const vec4 k = Fours(p.k).at[(row * dk + d) / 4];
      vec4 fade = vec4(fade_[row]);
      if (CHANNEL_DECAY != 0) {
        fade = exp(Fours(p.g).at[(last + d) / 4] - Fours(p.g).at[(row * dk + d) / 4]);
      }
      staged_[n] = k * fade;
    }
    barrier();
    const int d = d0 + 4 * eight;
    if (d >= dk || !mine) continue;
    vec4 s = vec4(0.0);
    if (before != 0) {
      [[unroll]] for (int i = 0; i < 4; ++i) {
        s[i] = exp(g.at[CHANNEL_DECAY != 0 ? last + d + i : last]) *
               SharedFloats(before).at[(d + i) * dv + column];
      }
    }
    for (int j8 = 0; j8 < kBlockTokens; j8 += 8) {
      [[unroll]] for (int j = 0; j < 8; ++j) {
        s = fma(staged_[(j8 + j) * (kTaken / 4) + eight], vec4(u_[(j8 + j) * kColumns + lane]), s);
      }
    }
    [[unroll]] for (int i = 0; i < 4; ++i) SharedFloats(kept).at[(d + i) * dv + column] = s[i];
  }
}

void main() {
  ReadShape();
  me = int(gl_LocalInvocationID.x);
  lane = me % kColumns;
  eight = me / kColumns;
  column = int(gl_WorkGroupID.x) * kColumns + lane;
  mine = column < dv;
  const int head = int(gl_WorkGroupID.y), number = int(gl_WorkGroupID.z);
  Batch batch = Batch(a.batch);
  const Span span = Spans(batch.spans).at[a.first_span + number];
  if (IsStep(span)) return;
  for (int turn = 0; turn < a.chunks; ++turn) {
    const Rows rows = RowsOfChunk(span, span.start / kBlockTokens + a.first_chunk + turn);
    if (rows.first >= rows.end) return;
    const Places p = PlacesOf((number * a.chunks + turn) * value_heads + head);
    uint64_t page = PageOf(batch, span, rows.chunk);
    if (page != 0) page += HeadBytes() * uint64_t(head);
    const uint64_t before = StateBefore(batch, span, number, rows.chunk, head);
    if (me < rows.end) {
      if (CHANNEL_DECAY == 0) {
        const float g = Floats(p.g).at[me];
        decay_[me] = exp(g);
        if (rows.end == kBlockTokens) fade_[me] = exp(Floats(p.g).at[kBlockTokens - 1] - g);
      }
      if (me >= rows.first) beta_[me] = Update(rows.token + me, head);
    }
    [[unroll]] for (int i = 0; i < kRowSum; ++i) memory_[i] = sum_[i] = 0.0;
    barrier();
    if (before != 0) ReadState(rows, p, SharedFloats(before));
    for (int other = 0; kRowSum * other < rows.end; ++other) {
      ONLY_IF(eight == other) Solve(rows, p, head, page);
      barrier();
      ONLY_IF(eight > other && kRowSum * eight < rows.end) ReadRows(p, other);
    }
    if (rows.end < kBlockTokens) return;
    const bool last = (rows.chunk + 1) * kBlockTokens == span.start + span.token_count;
    if (page != 0 || !last) TakeIn(p, before, page != 0 ? page : Carried(number, head));
    memoryBarrierBuffer();
    barrier();
  }
}
