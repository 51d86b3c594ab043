// out[t] = (add ? out[t] : 0) + sum of weights[t][j] * rows[at[t][j]], j ascending.
#version 460
#include "memory.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform Arguments {
  uint64_t rows, at, weights, out_;
  int cols, k, add, rows_stride, out_stride;
} a;

void main() {
  const int col = int(gl_GlobalInvocationID.x), token = int(gl_WorkGroupID.y);
  if (col >= a.cols) return;
  Floats result = RowOf(a.out_, token, a.out_stride);
  float y = a.add != 0 ? result.at[col] : 0.0;
  for (int i = token * a.k; i < (token + 1) * a.k; ++i) {
    const int from = a.at != 0 ? Ints(a.at).at[i] : i;
    const float weight = a.weights != 0 ? Floats(a.weights).at[i] : 1.0;
    y = fma(weight, RowOf(a.rows, from, a.rows_stride).at[col], y);
  }
  result.at[col] = y;
}
