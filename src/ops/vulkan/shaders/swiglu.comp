// out = silu(gate) * up, or with a limit min(silu(gate), limit) * clamp(up, -limit, limit).
#version 460
#include "memory.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform Arguments {
  uint64_t gate_up, out_;
  int cols, in_stride, out_stride;
  float limit;
} a;

void main() {
  const int col = int(gl_GlobalInvocationID.x), row = int(gl_WorkGroupID.y);
  if (col >= a.cols) return;
  Floats from = RowOf(a.gate_up, row, a.in_stride);
  float gate = Silu(from.at[col]), up = from.at[a.cols + col];
  if (a.limit > 0.0) {
    gate = min(gate, a.limit);
    up = clamp(up, -a.limit, a.limit);
  }
  RowOf(a.out_, row, a.out_stride).at[col] = gate * up;
}
