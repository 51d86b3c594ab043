// x += delta; out = x / rms(x) * (offset + weight). A workgroup per row.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
layout(push_constant) uniform Arguments {
  uint64_t x, delta, weight, out_;
  int cols, x_stride, delta_stride, out_stride;
  float offset, eps;
} a;

void main() {
  const int row = int(gl_WorkGroupID.x), me = int(gl_LocalInvocationID.x);
  Floats x = RowOf(a.x, row, a.x_stride);
  Floats delta = RowOf(a.delta, row, a.delta_stride);
  float squares = 0.0;
  for (int c = me; c < a.cols; c += THREADS) {
    float value = x.at[c];
    if (a.delta != 0) {
      value += delta.at[c];
      x.at[c] = value;
    }
    squares = fma(value, value, squares);
  }
  if (a.out_ == 0) return;
  const float scale = 1.0 / sqrt(SumOfAll(squares) / float(a.cols) + a.eps);
  Floats weight = Floats(a.weight), result = RowOf(a.out_, row, a.out_stride);
  for (int c = me; c < a.cols; c += THREADS) {
    result.at[c] = x.at[c] * scale * (a.offset + weight.at[c]);
  }
}
