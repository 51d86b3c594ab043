// Rows of activations as integers (ops/reference/quantise.h): codes of four columns a word, padded
// with zeros to `depth` columns, and a scale per row. Workgroups: parts of `cols` columns that lie
// x_step apart, each of which becomes a row; rows.
#version 460
#include "../memory.glsl"
#include "../reduce.glsl"
layout(push_constant) uniform Arguments {
  uint64_t x, codes, scales;
  int cols, depth, stride, x_step;
} a;

void main() {
  const int part = int(gl_WorkGroupID.x), me = int(gl_LocalInvocationID.x);
  const int row = int(gl_WorkGroupID.y) * int(gl_NumWorkGroups.x) + part;
  Floats x = RowOf(a.x + 4ul * uint64_t(part * a.x_step), int(gl_WorkGroupID.y), a.stride);
  float most = 0.0;
  float finite = 0.0;
  for (int c = me; c < a.cols; c += THREADS) {
    const float value = abs(x.at[c]);
    if (!(value < uintBitsToFloat(0x7f800000u))) finite = 1.0;
    most = max(most, value);
  }
  most = MaxOfAll(most);
  const bool bad = MaxOfAll(finite) > 0.0;
  const bool some = !bad && most >= uintBitsToFloat(0x0d800000u);  // 2^-100
  const float factor = some ? 127.0 / most : 0.0;
  Words codes = Words(a.codes + uint64_t(row) * uint64_t(a.depth));
  for (int w = me; w < a.depth / 4; w += THREADS) {
    uint word = 0;
    for (int j = 0; j < 4; ++j) {
      const int c = 4 * w + j;
      if (some && c < a.cols) word |= (uint(int(roundEven(x.at[c] * factor))) & 255u) << (8 * j);
    }
    codes.at[w] = word;
  }
  if (me == 0) {
    Floats(a.scales).at[row] = bad ? uintBitsToFloat(0x7fc00000u) : some ? most / 127.0 : 0.0;
  }
}
