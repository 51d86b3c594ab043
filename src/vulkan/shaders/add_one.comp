// Adds one to each of 256 numbers: a kernel that does next to nothing, and reads what the one before
// it wrote.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 256) in;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(push_constant) uniform Arguments { uint64_t words; } a;

void main() { Words(a.words).at[gl_LocalInvocationID.x] += 1; }
