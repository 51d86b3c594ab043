// Reads memory as fast as it comes: a workgroup a piece of it, an invocation every 256th line of 16
// bytes, eight of them in a round. The number of lines is a multiple of all that.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Lines { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(push_constant) uniform Arguments {
  uint64_t from, to;
  int lines;
} a;

void main() {
  uvec4 sum = uvec4(0), other = uvec4(0);
  const int step = 256, piece = a.lines / int(gl_NumWorkGroups.x);
  const int begin = int(gl_WorkGroupID.x) * piece;
  for (int i = begin + int(gl_LocalInvocationID.x); i < begin + piece; i += 8 * step) {
    [[unroll]] for (int j = 0; j < 8; j += 2) {
      sum += Lines(a.from).at[i + j * step];
      other ^= Lines(a.from).at[i + (j + 1) * step];
    }
  }
  sum += other;
  // The sums must be wanted for the reads to stay.
  Words(a.to).at[gl_GlobalInvocationID.x] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}
