// out[t] = sigmoid(x[t] . w). A workgroup per token.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
layout(push_constant) uniform Arguments {
  uint64_t x, weight, out_;
  int cols, stride;
} a;

void main() {
  const int row = int(gl_WorkGroupID.x);
  Floats x = RowOf(a.x, row, a.stride);
  float sum = 0.0;
  for (int c = int(gl_LocalInvocationID.x); c < a.cols; c += THREADS) {
    sum = fma(x.at[c], Floats(a.weight).at[c], sum);
  }
  sum = SumOfAll(sum);
  if (gl_LocalInvocationID.x == 0) Floats(a.out_).at[row] = Sigmoid(sum);
}
