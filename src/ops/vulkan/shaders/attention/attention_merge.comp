// Merges the sums of single blocks that attention.comp has made with SPLIT, in the order of blocks.
// A run takes a.blocks of them; between runs the maximum and the sum wait in `running`, the values
// in `out`. 64 channels of a value and 64 blocks at a time. Workgroups: chunks, tokens, heads.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "attention.glsl"
const int THREADS = 128, FOURS = 16, BLOCKS = 64, STEP = THREADS / FOURS;
layout(local_size_x = THREADS) in;
shared float parts[BLOCKS][4 * FOURS];
shared float block_most[BLOCKS], block_sum[BLOCKS], keep[BLOCKS], add[BLOCKS];

void main() {
  const int me = int(gl_LocalInvocationID.x), chunk = int(gl_WorkGroupID.x);
  const int token = a.first_token + int(gl_WorkGroupID.y), head = int(gl_WorkGroupID.z);
  Batch batch = Batch(a.batch);
  const Span span = SpanOfToken(batch, token);
  const int all = BlocksOf(span.start + token - span.token_begin + 1);
  const int count = min(all - a.first_block, a.blocks), c = 4 * FOURS * chunk + me;
  if (count <= 0) return;
  const bool mine = me < 4 * FOURS && c < ValueDim();
  const int four = chunk * FOURS + me % FOURS;
  Floats running = RunningAt(token, head, chunk);
  Floats result = RowOf(a.out_, token, a.out_stride);
  float most = kNever, sum = 0.0, own = 0.0;
  if (a.first_block > 0) {
    most = running.at[0];
    sum = running.at[1];
    if (mine) own = result.at[head * ValueDim() + c];
  }
  for (int first = 0; first < count; first += BLOCKS) {
    const int here = min(BLOCKS, count - first);
    vec4 next[BLOCKS / STEP];
    [[unroll]] for (int i = 0; i < BLOCKS / STEP; ++i) {
      const int b = me / FOURS + i * STEP;
      next[i] = b < here && 4 * four < ValueDim()
                    ? Fours(PartAt(token, head, first + b)).at[1 + four]
                    : vec4(0.0);
    }
    barrier();
    [[unroll]] for (int i = 0; i < BLOCKS / STEP; ++i) {
      const int b = me / FOURS + i * STEP;
      [[unroll]] for (int j = 0; j < 4; ++j) parts[b][4 * (me % FOURS) + j] = next[i][j];
    }
    if (me < here) {
      const vec4 one = Fours(PartAt(token, head, first + me)).at[0];
      block_most[me] = one.x;
      block_sum[me] = one.y;
    }
    barrier();
    if (me < here) {
      float before = most;
      for (int b = 0; b < me; ++b) before = max(before, block_most[b]);
      const float after = max(before, block_most[me]);
      keep[me] = KeepOf(before, after);
      add[me] = AddOf(block_most[me], after);
    }
    barrier();
    for (int b = 0; b < here; ++b) {
      if (block_most[b] == kNever) continue;
      most = max(most, block_most[b]);
      sum = Merged(sum, keep[b], block_sum[b], add[b]);
      own = Merged(own, keep[b], parts[b][min(me, 4 * FOURS - 1)], add[b]);
    }
  }
  const bool last = a.first_block + count == all;
  if (!last && me == 0) {
    running.at[0] = most;
    running.at[1] = sum;
  }
  if (!mine) return;
  if (last) {
    Finish(token, head, c, own, sum);
  } else {
    result.at[head * ValueDim() + c] = own;
  }
}
