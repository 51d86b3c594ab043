// y = x W^T for a panel of 16 outputs and up to ROWS rows. Four threads read a line of 64 bytes, four
// outputs each; SLICES such groups take the lines (or the groups of columns that share a scale) in
// turn, and the slices' sums are added in their order. So a row's sum has one order whatever ROWS
// is, and neighbours read neighbouring lines.
//
// With `ids` a row's matrix is ids[row] * id_step + z, and its input is row / x_divisor: the experts
// of tokens. With x_step every matrix has columns of its own of the input, x_step apart; as codes
// these are rows, those of an input row together. Workgroups: panels, rows / ROWS, matrices whose
// outputs lie z_step apart; a gate has one column for each.
#version 460
#include "memory.glsl"
#include "weights.glsl"
const int SLICES = 16;
layout(local_size_x = 4, local_size_y = SLICES) in;
layout(push_constant) uniform Arguments {
  uint64_t x;       // floats, or codes when the weights are integers
  uint64_t scales;  // of the codes' rows
  uint64_t w, y, ids, gate;
  uint64_t panel_bytes, matrix_bytes;
  int rows, n, k, depth;
  int x_stride, y_stride, x_divisor, id_step, z_step, x_step, gate_stride;
} a;

shared uint partial[SLICES][16][ROWS];  // bits of floats; int8: integers

float acc[ROWS][4];
int sums[ROWS][4];
int first_row;
uint64_t x_at[ROWS];

void AddF32(uint64_t panel, int slice, int quad) {
  for (int c = slice; c < a.k; c += SLICES) {
    const vec4 w = uintBitsToFloat(Lines(panel).at[c * 4 + quad]);
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      const float x = Floats(x_at[r]).at[c];
      [[unroll]] for (int o = 0; o < 4; ++o) acc[r][o] = fma(x, w[o], acc[r][o]);
    }
  }
}

void AddBf16(uint64_t panel, int slice, int quad) {
  for (int line = slice; line < (a.k + 1) / 2; line += SLICES) {
    const uvec4 w = Lines(panel).at[line * 4 + quad];
    const bool both = 2 * line + 1 < a.k;
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      const float x0 = Floats(x_at[r]).at[2 * line];
      const float x1 = both ? Floats(x_at[r]).at[2 * line + 1] : 0.0;
      [[unroll]] for (int o = 0; o < 4; ++o) {
        acc[r][o] = fma(x0, uintBitsToFloat(w[o] << 16), acc[r][o]);
        acc[r][o] = fma(x1, uintBitsToFloat(w[o] & 0xffff0000u), acc[r][o]);
      }
    }
  }
}

void AddFp8(uint64_t panel, int slice, int quad) {
  for (int group = slice; group < a.depth / kFp8Columns; group += SLICES) {
    const uint64_t block = panel + uint64_t(group) * uint64_t(kFp8Bytes);
    float part[ROWS][4];
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      [[unroll]] for (int o = 0; o < 4; ++o) part[r][o] = 0.0;
    }
    for (int line = 0; line < kFp8Columns / 4; ++line) {
      const uvec4 words = Lines(block + 64ul).at[line * 4 + quad];
      [[unroll]] for (int j = 0; j < 4; ++j) {
        const int c = group * kFp8Columns + 4 * line + j;
        vec4 codes;
        [[unroll]] for (int o = 0; o < 4; ++o) codes[o] = Fp8At(words, o, j);
        [[unroll]] for (int r = 0; r < ROWS; ++r) {
          const float x = c < a.k ? Floats(x_at[r]).at[c] : 0.0;
          [[unroll]] for (int o = 0; o < 4; ++o) part[r][o] = fma(x, codes[o], part[r][o]);
        }
      }
    }
    [[unroll]] for (int o = 0; o < 4; ++o) {
      const float scale = Floats(block).at[quad * 4 + o];
      [[unroll]] for (int r = 0; r < ROWS; ++r) acc[r][o] = fma(part[r][o], scale, acc[r][o]);
    }
  }
}

int Dot(uint a_word, uint b_word) {
  int sum = 0;
  [[unroll]] for (int j = 0; j < 4; ++j) sum += SignedByte(a_word, j) * SignedByte(b_word, j);
  return sum;
}

// `count` lines whose products make one exact sum; four more codes of each output a line, or eight
// when a byte has two.
void AddLines(uint64_t lines, int count, int quad, int word) {
  for (int l = 0; l < count; ++l) {
    const uvec4 w = Lines(lines).at[l * 4 + quad];
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      if (FORMAT == kI4) {
        const uint low = Words(x_at[r]).at[word + 2 * l], high = Words(x_at[r]).at[word + 2 * l + 1];
        [[unroll]] for (int o = 0; o < 4; ++o) {
          sums[r][o] += Dot(w[o] & 0x0f0f0f0fu, low) + Dot(w[o] >> 4 & 0x0f0f0f0fu, high) -
                        8 * (Dot(0x01010101u, low) + Dot(0x01010101u, high));
        }
      } else {
        const uint x = Words(x_at[r]).at[word + l];
        [[unroll]] for (int o = 0; o < 4; ++o) sums[r][o] += Dot(w[o], x);
      }
    }
  }
}

// Unsigned codes of four columns.
int DotCodes(uint codes, uint x) {
  int sum = 0;
  [[unroll]] for (int j = 0; j < 4; ++j) {
    sum += int(Mapped(bitfieldExtract(codes, 8 * j, 8))) * SignedByte(x, j);
  }
  return sum;
}

void AddGrouped(uint64_t panel, int slice, int quad) {
  const int words = GROUP / 4;
  for (int group = slice; group < a.depth / GROUP; group += SLICES) {
    const int col = group * GROUP % BLOCK, first = col % 32 / 4;
    const uint64_t block = panel + uint64_t(group * GROUP / BLOCK) * uint64_t(BlockBytes());
    const uint64_t lines = block + uint64_t(CodesOffset() + col / 32 * BITS * 64);
    int of_x[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      of_x[r] = 0;
      [[unroll]] for (int o = 0; o < 4; ++o) sums[r][o] = 0;
    }
    for (int t = 0; t < words; ++t) {
      const int word = first + t;
      uvec4 codes = uvec4(0);
      [[unroll]] for (int plane = 8; plane > 0; plane /= 2) {
        if ((BITS & plane) == 0) continue;
        const int per_line = 8 / plane, line = PlaneShift(plane) + word / per_line;
        const uint mask = ((1u << plane) - 1u) * 0x01010101u;
        const uvec4 bits = Lines(lines).at[line * 4 + quad];
        codes |= (bits >> (word % per_line * plane) & mask) << PlaneShift(plane);
      }
      [[unroll]] for (int r = 0; r < ROWS; ++r) {
        const uint x = Words(x_at[r]).at[group * words + t];
        of_x[r] += Dot(0x01010101u, x);
        [[unroll]] for (int o = 0; o < 4; ++o) sums[r][o] += DotCodes(codes[o], x);
      }
    }
    [[unroll]] for (int o = 0; o < 4; ++o) {
      const float scale = ScaleAt(block, quad * 4 + o, col);
      const float base = HasBase() ? BaseAt(block, quad * 4 + o, col) : 0.0;
      [[unroll]] for (int r = 0; r < ROWS; ++r) {
        acc[r][o] = fma(float(sums[r][o] - CENTRE * of_x[r]), scale, acc[r][o]);
        if (HasBase()) acc[r][o] = fma(float(-of_x[r]), base, acc[r][o]);
      }
    }
  }
}

void AddI8(uint64_t panel, int slice, int quad) {
  for (int line = slice; line < a.depth / 4; line += SLICES) {
    AddLines(panel + 64ul * uint64_t(line), 1, quad, line);
  }
}

// q8_0 and int4: 32 columns share a scale.
void AddGroups(uint64_t panel, int slice, int quad) {
  const int lines = FORMAT == kI4 ? 4 : 8;
  const int block_bytes = 64 + 2 * lines * 64;
  for (int group = slice; group < a.depth / 32; group += SLICES) {
    const uint64_t block = panel + uint64_t(group / 2) * uint64_t(block_bytes);
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      [[unroll]] for (int o = 0; o < 4; ++o) sums[r][o] = 0;
    }
    AddLines(block + 64ul + uint64_t(group % 2) * uint64_t(lines * 64), lines, quad, group * 8);
    [[unroll]] for (int o = 0; o < 4; ++o) {
      const float scale = OfHalf(block, group % 2 * 16 + quad * 4 + o);
      [[unroll]] for (int r = 0; r < ROWS; ++r) {
        acc[r][o] = fma(float(sums[r][o]), scale, acc[r][o]);
      }
    }
  }
}

// The row of codes, and of their scales, that row r's product with matrix z takes.
int CodesOf(int r, int z) {
  const int row = r / a.x_divisor;
  return a.x_step != 0 ? row * int(gl_NumWorkGroups.z) + z : row;
}

void main() {
  const int quad = int(gl_LocalInvocationID.x), slice = int(gl_LocalInvocationID.y);
  const int panel_index = int(gl_WorkGroupID.x), z = int(gl_WorkGroupID.z);
  first_row = int(gl_WorkGroupID.y) * ROWS;
  const bool integers = FORMAT == kI8 || FORMAT == kQ8_0 || FORMAT == kI4 || FORMAT == kGrouped;
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    // Rows past the last compute it again; their sums are dropped.
    const int row = min(first_row + r, a.rows - 1);
    x_at[r] = integers ? a.x + uint64_t(CodesOf(row, z)) * uint64_t(a.depth)
                       : a.x + 4ul * (uint64_t(row / a.x_divisor) * uint64_t(a.x_stride) +
                                      uint64_t(z * a.x_step));
    [[unroll]] for (int o = 0; o < 4; ++o) {
      acc[r][o] = 0.0;
      sums[r][o] = 0;
    }
  }
  int matrix = z;
  if (a.ids != 0) matrix += Ints(a.ids).at[first_row] * a.id_step;
  const uint64_t panel =
      a.w + uint64_t(matrix) * a.matrix_bytes + uint64_t(panel_index) * a.panel_bytes;
  if (FORMAT == kF32) {
    AddF32(panel, slice, quad);
  } else if (FORMAT == kBF16) {
    AddBf16(panel, slice, quad);
  } else if (FORMAT == kFp8) {
    AddFp8(panel, slice, quad);
  } else if (FORMAT == kI8) {
    AddI8(panel, slice, quad);
  } else if (FORMAT == kGrouped) {
    AddGrouped(panel, slice, quad);
  } else {
    AddGroups(panel, slice, quad);
  }
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    [[unroll]] for (int o = 0; o < 4; ++o) {
      partial[slice][quad * 4 + o][r] =
          FORMAT == kI8 ? uint(sums[r][o]) : floatBitsToUint(acc[r][o]);
    }
  }
  barrier();
  for (int i = int(gl_LocalInvocationIndex); i < 16 * ROWS; i += 4 * SLICES) {
    const int lane = i % 16, r = i / 16, row = first_row + r, output_ = panel_index * 16 + lane;
    if (row >= a.rows || output_ >= a.n) continue;
    float sum = 0.0;
    if (FORMAT == kI8) {
      int whole = 0;
      for (int s = 0; s < SLICES; ++s) whole += int(partial[s][lane][r]);
      sum = float(whole) * Floats(panel + uint64_t(a.depth) * 16ul).at[lane];
    } else {
      for (int s = 0; s < SLICES; ++s) sum += uintBitsToFloat(partial[s][lane][r]);
    }
    if (integers) sum *= Floats(a.scales).at[CodesOf(row, z)];
    if (a.gate != 0) sum *= Sigmoid(RowOf(a.gate, row, a.gate_stride).at[z]);
    RowOf(a.y, row, a.y_stride).at[z * a.z_step + output_] = sum;
  }
}
