// Reads memory as fast as it comes: each invocation every gl_NumWorkGroups * 256-th line of 16 bytes.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Lines { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(push_constant) uniform Arguments {
  uint64_t from, to;
  int lines;
} a;

void main() {
  uvec4 sum = uvec4(0);
  const int step = int(gl_NumWorkGroups.x) * 256;
  for (int i = int(gl_GlobalInvocationID.x); i < a.lines; i += step) sum += Lines(a.from).at[i];
  // The sums must be wanted for the reads to stay.
  Words(a.to).at[gl_GlobalInvocationID.x] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}
