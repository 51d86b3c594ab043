// y = x W^T for a panel of 16 outputs and up to ROWS rows. Four invocations read a line of 64
// bytes, four outputs each. SLICES such groups have a piece
// of the columns each, whose sums are added in their order (product.glsl).
//
// With `ids` a row's matrix is ids[row] * id_step + z, and its input is row / x_divisor: the experts
// of tokens. With x_step every matrix has columns of its own of the input, x_step apart; as codes
// these are rows, those of an input row together. Workgroups: panels, rows / ROWS or tiles,
// matrices whose outputs lie z_step apart; a gate has one column for each.
#version 460
#include "../memory.glsl"
#include "../weights.glsl"
#include "product.glsl"
layout(local_size_x = 4, local_size_y_id = 6) in;
#if ROWS == 1
#define UNROLLED [[unroll]]
#else
#define UNROLLED  // drivers compile this long enough
#endif

// Rows whose sums are in shared memory at once.
const int STORED = min(ROWS, 4);
shared uint partial[SLICES][16][STORED];  // bits of floats; int8: integers

float acc[ROWS][4];
uint64_t x_at[ROWS];
// Lines that are read before the first is used: fewer where many rows use each.
const int HELD = ROWS == 1 ? 8 : 4;
uvec4 held[HELD];

void AddFloats(uint64_t panel, int begin, int end, int quad) {
  const int columns = HELD * LINE_COLUMNS;
  for (int c = begin; c < end; c += columns) {
    const uint64_t lines = FloatLines(panel, c);
    [[unroll]] for (int l = 0; l < HELD; ++l) held[l] = Lines(lines).at[l * 4 + quad];
    const vec4 scale = Fp8Scale(panel, quad, c);
    [[unroll]] for (int four = 0; four < HELD; ++four) {
      if (4 * four < columns) {
        vec4 x[ROWS];
        [[unroll]] for (int r = 0; r < ROWS; ++r) x[r] = FourOf(x_at[r], c + 4 * four);
        [[unroll]] for (int j = 0; j < 4; ++j) {
          const int column = 4 * four + j;
          const vec4 w = OfLine(held[column / LINE_COLUMNS % HELD], column % LINE_COLUMNS, scale);
          [[unroll]] for (int r = 0; r < ROWS; ++r) {
            [[unroll]] for (int o = 0; o < 4; ++o) acc[r][o] = fma(x[r][j], w[o], acc[r][o]);
          }
        }
      }
    }
  }
}

// Half a unit: four words of codes of each output.
int sums[ROWS][4], of_x[ROWS];
void AddWords(uint64_t panel, int unit, int half_, int quad) {
  uvec4 codes[4];
  [[unroll]] for (int j = 0; j < 4; ++j) codes[j] = BitsAt(panel, unit, 4 * half_ + j, quad);
  uvec4 x[ROWS];
  [[unroll]] for (int r = 0; r < ROWS; ++r) x[r] = Lines(x_at[r]).at[2 * unit + half_];
  [[unroll]] for (int j = 0; j < 4; ++j) {
    uvec4 w;
    [[unroll]] for (int o = 0; o < 4; ++o) w[o] = SignedCodes(codes[j][o]);
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      if (REST != 0 || HasBase()) of_x[r] += Dot(0x01010101u, x[r][j]);
      [[unroll]] for (int o = 0; o < 4; ++o) sums[r][o] += Dot(w[o], x[r][j]);
    }
  }
}
void BeginGroup() {
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    of_x[r] = 0;
    [[unroll]] for (int o = 0; o < 4; ++o) sums[r][o] = 0;
  }
}
void EndGroup(uint64_t panel, int unit, int group, int quad) {
  const vec4 scale = UnitScales(panel, unit, group, quad);
  const vec4 base = HasBase() ? UnitBases(panel, unit, group, quad) : vec4(0.0);
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    [[unroll]] for (int o = 0; o < 4; ++o) {
      acc[r][o] = fma(float(sums[r][o] - REST * of_x[r]), scale[o], acc[r][o]);
      if (HasBase()) acc[r][o] = fma(float(-of_x[r]), base[o], acc[r][o]);
    }
  }
}

void AddIntegers(uint64_t panel, int begin, int end, int quad) {
  BeginGroup();
  for (int unit = begin; unit < end; ++unit) {
    UNROLLED for (int half_ = 0; half_ < 2; ++half_) {
      if (FORMAT != kI8 && (half_ == 0 || UNIT_GROUPS == 2)) BeginGroup();
      AddWords(panel, unit, half_, quad);
      if (FORMAT != kI8 && UNIT_GROUPS == 2) EndGroup(panel, unit, half_, quad);
    }
    if (FORMAT != kI8 && UNIT_GROUPS == 1) EndGroup(panel, unit, 0, quad);
  }
}

float SumOfPieces(uint64_t panel, int lane, int stored) {
  float sum = 0.0;
  int exact = 0;
  for (int piece = 0; piece < SLICES; piece += 16) {
    [[unroll]] for (int s = 0; s < 16; ++s) {
      if (FORMAT == kI8) {
        exact += int(partial[piece + s][lane][stored]);
      } else {
        sum += uintBitsToFloat(partial[piece + s][lane][stored]);
      }
    }
  }
  return FORMAT == kI8 ? float(exact) * I8Scale(panel, lane) : sum;
}

void main() {
  const int quad = int(gl_LocalInvocationID.x), slice = int(gl_LocalInvocationID.y);
  const int panel_index = int(gl_WorkGroupID.x);
  const Rows rows = RowsOfGroup(ROWS);
  if (rows.begin >= rows.end) return;
  FillMapped(int(gl_LocalInvocationIndex));
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    // Rows past the last compute it again; their sums are dropped.
    x_at[r] = InputOf(RowAt(min(rows.begin + r, rows.end - 1)));
    [[unroll]] for (int o = 0; o < 4; ++o) acc[r][o] = 0.0;
  }
  const uint64_t panel =
      a.w + uint64_t(rows.matrix) * a.matrix_bytes + uint64_t(panel_index) * a.panel_bytes;
  const int begin = slice * UnitsOfPiece(), end = min(begin + UnitsOfPiece(), Units());
  if (INTEGERS) {
    AddIntegers(panel, begin, end, quad);
  } else {
    AddFloats(panel, begin * UNIT, min(end * UNIT, a.depth), quad);
  }
  [[unroll]] for (int first = 0; first < ROWS; first += STORED) {
    if (first > 0) barrier();
    [[unroll]] for (int r = 0; r < STORED; ++r) {
      [[unroll]] for (int o = 0; o < 4; ++o) {
        partial[slice][quad * 4 + o][r] =
            FORMAT == kI8 ? uint(sums[first + r][o]) : floatBitsToUint(acc[first + r][o]);
      }
    }
    barrier();
    for (int i = int(gl_LocalInvocationIndex); i < 16 * STORED; i += 4 * SLICES) {
      const int lane = i % 16, row = rows.begin + first + i / 16;
      const int output_ = panel_index * 16 + lane;
      if (row >= rows.end || output_ >= a.n) continue;
      WriteSum(SumOfPieces(panel, lane, i / 16), RowAt(row), output_);
    }
  }
}
