// What all kernels share. Memory is reached by addresses; rows of matrices lie `stride` floats
// apart, as on the host (src/tensor/tensor.h).
//
// A row's numbers must not depend on the rows beside it, on other workgroups, or on the variant of
// a kernel: every sum has one order, written down here, and sums use fma() so that no compiler
// contracts one variant and not the other.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Lines { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Fours { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Pairs { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Addresses {
  uint64_t at[];
};

Floats RowOf(uint64_t matrix, int row, int stride) {
  return Floats(matrix + 4ul * uint64_t(row) * uint64_t(stride));
}

float OfBf16(uint bits) { return uintBitsToFloat(bits << 16); }
// To the nearest, ties to even; NaN stays NaN.
uint Bf16Of(float x) {
  uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

float Sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }
float Silu(float x) { return x / (1.0 + exp(-x)); }

const int kBlockTokens = 64;
const float kNever = -3.402823466e38;  // below every score
