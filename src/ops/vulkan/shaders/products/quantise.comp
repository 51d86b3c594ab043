// Rows of activations as integers (ops/reference/quantise.h): codes of four columns a word, padded
// with zeros to `depth` columns, and a scale per row. Workgroups: parts of `cols` columns that lie
// x_step apart, each of which becomes a row; rows.
#version 460
#include "../memory.glsl"
layout(constant_id = 0) const uint INVOCATIONS = 64;
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Arguments {
  uint64_t x, codes, scales;
  int cols, depth, stride, x_step;
} a;

const int THREADS = int(INVOCATIONS), kThreadsMax = 512, kParts = 32;
const uint kInfinity = 0x7f800000u;
shared uint all_[kThreadsMax], parts_[kParts];

// Magnitudes have the order of their bits, and NaN is above infinity.
uint MostOfAll(uint most, int me) {
  all_[me] = most;
  barrier();
  for (int n = me; n < kParts; n += THREADS) {
    uint part = 0;
    for (int i = n; i < THREADS; i += kParts) part = max(part, all_[i]);
    parts_[n] = part;
  }
  barrier();
  uint result = 0;
  [[unroll]] for (int i = 0; i < kParts; ++i) result = max(result, parts_[i]);
  return result;
}

vec4 FourAt(Floats x, int word) {
  vec4 four;
  [[unroll]] for (int j = 0; j < 4; ++j) {
    const float one = x.at[min(4 * word + j, a.cols - 1)];
    four[j] = 4 * word + j < a.cols ? one : 0.0;
  }
  return four;
}
uint MostOf(vec4 four) {
  const uvec4 bits = floatBitsToUint(four) & 0x7fffffffu;
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}
uint CodesOf(vec4 four, float factor) {
  const uvec4 codes = uvec4(ivec4(roundEven(four * factor))) & 255u;
  return codes.x | codes.y << 8 | codes.z << 16 | codes.w << 24;
}

void main() {
  const int part = int(gl_WorkGroupID.x), me = int(gl_LocalInvocationID.x);
  const int row = int(gl_WorkGroupID.y) * int(gl_NumWorkGroups.x) + part;
  const int words = a.depth / 4;
  Floats x = RowOf(a.x + 4ul * uint64_t(part * a.x_step), int(gl_WorkGroupID.y), a.stride);
  const vec4 first = FourAt(x, me);  // read once
  uint most = MostOf(first);
  for (int w = me + THREADS; w < words; w += THREADS) most = max(most, MostOf(FourAt(x, w)));
  most = MostOfAll(most, me);
  const bool bad = most >= kInfinity, some = !bad && most >= 0x0d800000u;  // 2^-100
  const float largest = uintBitsToFloat(most), factor = some ? 127.0 / largest : 0.0;
  Words codes = Words(a.codes + uint64_t(row) * uint64_t(a.depth));
  if (me < words) codes.at[me] = some ? CodesOf(first, factor) : 0u;
  for (int w = me + THREADS; w < words; w += THREADS) {
    codes.at[w] = some ? CodesOf(FourAt(x, w), factor) : 0u;
  }
  if (me == 0) {
    Floats(a.scales).at[row] = bad ? uintBitsToFloat(0x7fc00000u) : some ? largest / 127.0 : 0.0;
  }
}
