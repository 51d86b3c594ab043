// Multiplies and adds without memory: sixteen chains an invocation.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(push_constant) uniform Arguments {
  uint64_t from, to;
  int rounds;
} a;

void main() {
  const float by = 1.0 - 1e-6 * float(gl_LocalInvocationID.x);
  vec4 x = vec4(1.0, 2.0, 3.0, 4.0), y = x + 1.0, z = x + 2.0, w = x + 3.0;
  for (int i = 0; i < a.rounds; ++i) {
    x = fma(x, vec4(by), vec4(0.5));
    y = fma(y, vec4(by), vec4(0.5));
    z = fma(z, vec4(by), vec4(0.5));
    w = fma(w, vec4(by), vec4(0.5));
  }
  const vec4 sum = x + y + z + w;
  Floats(a.to).at[gl_GlobalInvocationID.x] = sum.x + sum.y + sum.z + sum.w;
}
