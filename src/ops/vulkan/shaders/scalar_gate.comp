// out[t] = sigmoid(x[t] . w). A workgroup per token.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
layout(push_constant) uniform Arguments {
  uint64_t x, weight, out_;
  int cols, stride;
} a;

const int kHeld = 8;  // columns of an invocation that are loaded at once

void main() {
  const int row = int(gl_WorkGroupID.x);
  Floats x = RowOf(a.x, row, a.stride);
  Floats weight = Floats(a.weight);
  float sum = 0.0;
  for (int c = int(gl_LocalInvocationID.x); c < a.cols; c += kHeld * THREADS) {
    vec2 held[kHeld];
    [[unroll]] for (int i = 0; i < kHeld; ++i) {
      const int at = min(c + i * THREADS, a.cols - 1);
      held[i] = vec2(x.at[at], weight.at[at]);
    }
    [[unroll]] for (int i = 0; i < kHeld; ++i) {
      if (c + i * THREADS < a.cols) sum = fma(held[i].x, held[i].y, sum);
    }
  }
  sum = SumOfAll(sum);
  if (gl_LocalInvocationID.x == 0) Floats(a.out_).at[row] = Sigmoid(sum);
}
