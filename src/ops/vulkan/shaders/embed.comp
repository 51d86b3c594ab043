// out[t] = table[ids[t]]
#version 460
#include "memory.glsl"
#include "weights.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform Arguments {
  uint64_t table, ids, out_;
  uint64_t panel_bytes;
  int depth, cols, stride;
} a;

void main() {
  const int col = int(gl_GlobalInvocationID.x), token = int(gl_WorkGroupID.y);
  if (col >= a.cols) return;
  const int id = Ints(a.ids).at[token];
  const uint64_t panel = a.table + uint64_t(id / 16) * a.panel_bytes;
  RowOf(a.out_, token, a.stride).at[col] = WeightAt(panel, a.depth, id % 16, col);
}
