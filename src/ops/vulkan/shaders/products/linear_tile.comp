// y = x W^T for TILE rows and four panels of 16 outputs: 8 x 16 invocations with TILE / 8 rows and
// four outputs each. Columns pass through shared memory in steps, inputs and weights of the next
// while those of one are multiplied. Sums have the order of linear.comp: see product.glsl, and
// linear.comp for ids, matrices and gates. Workgroups: panels / 4, rows / TILE or tiles, matrices.
#version 460
#include "../memory.glsl"
#include "../weights.glsl"
#include "product.glsl"
const int HEIGHT = TILE / 8, ROW_QUADS = TILE / 4, INVOCATIONS = 128;
layout(local_size_x = 16, local_size_y = 8) in;

// A step: a unit of floats, or two units of codes, four of which are a word.
const int STEP_UNITS = INTEGERS ? 2 : 1, WORDS = INTEGERS ? 16 : 32, WORD_QUADS = WORDS / 4;
const int STEP_GROUPS = STEP_UNITS * UNIT_GROUPS;

// By word, then four rows or outputs. Rows change places so that neither side of a transposition
// meets one bank of the memory twice.
shared uvec4 xs[WORDS][ROW_QUADS], ws[WORDS][16];
shared vec4 scales[INTEGERS ? 4 : 1][16], bases[INTEGERS ? 4 : 1][16];
int PlaceOf(int row_quad, int word_quad) {
  return row_quad ^ (INTEGERS ? 2 * word_quad & ROW_QUADS - 1 : word_quad);
}

// What an invocation brings for the next step.
const int X_BLOCKS = ROW_QUADS * WORD_QUADS;  // of four rows and four words
const int W_LINES = INTEGERS ? 2 : 4 / LINE_COLUMNS;
uvec4 next_x[4], next_w[4];
vec4 next_scale = vec4(1.0), next_base;
uint64_t x_at[4];

float acc[HEIGHT][4], total[HEIGHT][4];
int sums[HEIGHT][4], of_x[HEIGHT];  // int8: of all columns; else of a group

uint64_t PanelAt(Rows rows, int index) {
  // Panels past the last are read as the last; their sums are dropped.
  const int panel = min(int(gl_WorkGroupID.x) * 4 + index, (a.n + 15) / 16 - 1);
  return a.w + uint64_t(rows.matrix) * a.matrix_bytes + uint64_t(panel) * a.panel_bytes;
}

uvec4 CodesAt(uint64_t panel, int unit, int t, int quad) {
  uvec4 codes = BitsAt(panel, unit, t, quad);
  [[unroll]] for (int o = 0; o < 4; ++o) {
    codes[o] = SignedCodes(codes[o]);
    if (REST != 0) codes[o] = Less(codes[o], uint(REST) * 0x01010101u);
  }
  return codes;
}

void Bring(Rows rows, int me, int step_) {
  if (me < X_BLOCKS) {
    const int word_quad = me % WORD_QUADS;
    [[unroll]] for (int r = 0; r < 4; ++r) {
      next_x[r] = INTEGERS ? Lines(x_at[r]).at[step_ * WORD_QUADS + word_quad]
                           : floatBitsToUint(FourOf(x_at[r], step_ * UNIT + 4 * word_quad));
    }
  }
  const int quad = me % 4, panel_index = me / 4 % 4;
  const uint64_t panel = PanelAt(rows, panel_index);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    const int line = me / 16 + 8 * i;
    if (i < W_LINES && INTEGERS) {
      next_w[i] = CodesAt(panel, step_ * 2 + line / 8, line % 8, quad);
    } else if (i < W_LINES) {
      const int c = step_ * UNIT + line * LINE_COLUMNS;
      next_w[i] = c < a.depth ? Lines(FloatLines(panel, c)).at[quad] : uvec4(0);
    }
  }
  if (FORMAT == kFp8) next_scale = Fp8Scale(panel, quad, step_ * UNIT);
  if (INTEGERS && FORMAT != kI8 && me / 16 < STEP_GROUPS) {
    const int group = me / 16, unit = step_ * 2 + group / UNIT_GROUPS;
    next_scale = UnitScales(panel, unit, group % UNIT_GROUPS, quad);
    if (HasBase()) next_base = UnitBases(panel, unit, group % UNIT_GROUPS, quad);
  }
}

void Store(int me) {
  if (me < X_BLOCKS) {
    const int word_quad = me % WORD_QUADS, place = PlaceOf(me / WORD_QUADS, word_quad);
    [[unroll]] for (int j = 0; j < 4; ++j) {
      xs[4 * word_quad + j][place] =
          uvec4(next_x[0][j], next_x[1][j], next_x[2][j], next_x[3][j]);
    }
  }
  const int of_panels = me % 16;
  [[unroll]] for (int i = 0; i < 4; ++i) {
    const int line = me / 16 + 8 * i;
    if (i < W_LINES && INTEGERS) {
      ws[line][of_panels] = next_w[i];
    } else if (i < W_LINES) {
      [[unroll]] for (int j = 0; j < 4; ++j) {
        if (j < LINE_COLUMNS) {
          ws[line * LINE_COLUMNS + j & 31][of_panels] =
              floatBitsToUint(OfLine(next_w[i], j, next_scale));
        }
      }
    }
  }
  if (INTEGERS && FORMAT != kI8 && me / 16 < STEP_GROUPS) {
    scales[me / 16][of_panels] = next_scale;
    if (HasBase()) bases[me / 16][of_panels] = next_base;
  }
}

void AddFloats() {
  const int tx = int(gl_LocalInvocationID.x), ty = int(gl_LocalInvocationID.y);
  for (int word_quad = 0; word_quad < WORD_QUADS; ++word_quad) {
    [[unroll]] for (int j = 0; j < 4; ++j) {
      const vec4 w = uintBitsToFloat(ws[4 * word_quad + j][tx]);
      [[unroll]] for (int q = 0; q < HEIGHT / 4; ++q) {
        const vec4 x = uintBitsToFloat(
            xs[4 * word_quad + j][PlaceOf(ty * (HEIGHT / 4) + q, word_quad)]);
        [[unroll]] for (int r = 0; r < 4; ++r) {
          [[unroll]] for (int o = 0; o < 4; ++o) {
            acc[4 * q + r][o] = fma(x[r], w[o], acc[4 * q + r][o]);
          }
        }
      }
    }
  }
}

void AddGroup(int group) {
  const int tx = int(gl_LocalInvocationID.x), ty = int(gl_LocalInvocationID.y);
  const int quads = 2 / UNIT_GROUPS;
  for (int word_quad = group * quads; word_quad < (group + 1) * quads; ++word_quad) {
    [[unroll]] for (int j = 0; j < 4; ++j) {
      const uvec4 w = ws[4 * word_quad + j][tx];
      [[unroll]] for (int q = 0; q < HEIGHT / 4; ++q) {
        const uvec4 x = xs[4 * word_quad + j][PlaceOf(ty * (HEIGHT / 4) + q, word_quad)];
        [[unroll]] for (int r = 0; r < 4; ++r) {
          if (HasBase()) of_x[4 * q + r] += Dot(0x01010101u, x[r]);
          [[unroll]] for (int o = 0; o < 4; ++o) sums[4 * q + r][o] += Dot(w[o], x[r]);
        }
      }
    }
  }
  if (FORMAT == kI8) return;
  const vec4 scale = scales[group][tx], base = HasBase() ? bases[group][tx] : vec4(0.0);
  [[unroll]] for (int r = 0; r < HEIGHT; ++r) {
    [[unroll]] for (int o = 0; o < 4; ++o) {
      acc[r][o] = fma(float(sums[r][o]), scale[o], acc[r][o]);
      if (HasBase()) acc[r][o] = fma(float(-of_x[r]), base[o], acc[r][o]);
      sums[r][o] = 0;
    }
    of_x[r] = 0;
  }
}

// A piece ends behind this unit.
void EndPiece() {
  [[unroll]] for (int r = 0; r < HEIGHT; ++r) {
    [[unroll]] for (int o = 0; o < 4; ++o) {
      total[r][o] += acc[r][o];
      acc[r][o] = 0.0;
    }
  }
}

void main() {
  const int me = int(gl_LocalInvocationIndex);
  const Rows rows = RowsOfGroup(TILE);
  if (rows.begin >= rows.end) return;
  FillMapped(me);
  [[unroll]] for (int r = 0; r < 4; ++r) {
    // Rows past the last compute it again; their sums are dropped.
    const int row = me / WORD_QUADS % ROW_QUADS * 4 + r;
    x_at[r] = InputOf(RowAt(min(rows.begin + row, rows.end - 1)));
  }
  [[unroll]] for (int r = 0; r < HEIGHT; ++r) {
    [[unroll]] for (int o = 0; o < 4; ++o) {
      acc[r][o] = total[r][o] = 0.0;
      sums[r][o] = 0;
    }
    of_x[r] = 0;
  }
  const int units = Units(), of_piece = UnitsOfPiece();
  const int steps = (units + STEP_UNITS - 1) / STEP_UNITS;
  for (int step_ = -1, of_this = 0; step_ < steps; ++step_) {  // the first only brings
    barrier();
    Store(me);
    barrier();
    if (step_ + 1 < steps) Bring(rows, me, step_ + 1);
    if (step_ < 0) continue;
    const int last = min(STEP_UNITS, units - step_ * STEP_UNITS);
    for (int u = 0; u < last; ++u) {
      if (INTEGERS) {
        for (int g = 0; g < UNIT_GROUPS; ++g) AddGroup(u * UNIT_GROUPS + g);
      } else {
        AddFloats();
      }
      if (++of_this < of_piece) continue;
      of_this = 0;
      if (FORMAT != kI8) EndPiece();
    }
  }
  if (FORMAT != kI8) EndPiece();
  const int tx = int(gl_LocalInvocationID.x), ty = int(gl_LocalInvocationID.y);
  const uint64_t panel = PanelAt(rows, tx / 4);
  const int first = (int(gl_WorkGroupID.x) * 16 + tx) * 4;
  vec4 scale = vec4(1.0);
  if (FORMAT == kI8) {
    [[unroll]] for (int o = 0; o < 4; ++o) scale[o] = I8Scale(panel, tx % 4 * 4 + o);
  }
  [[unroll]] for (int r = 0; r < HEIGHT; ++r) {
    const int place = rows.begin + ty * HEIGHT + r;
    if (place >= rows.end) continue;
    [[unroll]] for (int o = 0; o < 4; ++o) {
      const float sum = FORMAT == kI8 ? float(sums[r][o]) * scale[o] : total[r][o];
      if (first + o < a.n) WriteSum(sum, RowAt(place), first + o);
    }
  }
}
