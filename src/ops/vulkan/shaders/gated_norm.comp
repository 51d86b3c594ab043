// Per group of `dim` channels: out = x / rms(x) * weight * act(gate). A workgroup per row and group.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
layout(push_constant) uniform Arguments {
  uint64_t x, gate, weight, out_;
  int dim, x_stride, gate_stride, out_stride;
  int weight_per_channel, sigmoid;
  float eps;
} a;

void main() {
  const int row = int(gl_WorkGroupID.y), first = int(gl_WorkGroupID.x) * a.dim;
  const int me = int(gl_LocalInvocationID.x);
  Floats x = RowOf(a.x, row, a.x_stride), gate = RowOf(a.gate, row, a.gate_stride);
  float squares = 0.0;
  for (int c = me; c < a.dim; c += THREADS) {
    squares = fma(x.at[first + c], x.at[first + c], squares);
  }
  const float scale = 1.0 / sqrt(SumOfAll(squares) / float(a.dim) + a.eps);
  Floats weight = Floats(a.weight), result = RowOf(a.out_, row, a.out_stride);
  for (int c = me; c < a.dim; c += THREADS) {
    const float g = gate.at[first + c];
    const float w = weight.at[a.weight_per_channel != 0 ? first + c : c];
    const float act = a.sigmoid != 0 ? Sigmoid(g) : Silu(g);
    result.at[first + c] = x.at[first + c] * scale * w * act;
  }
}
