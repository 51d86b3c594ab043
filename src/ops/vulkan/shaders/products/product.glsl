// What the kernels of products share: linear.comp for few rows, linear_tile.comp for many.
//
// A sum's one order: the columns are cut into units of 32, the units into SLICES contiguous pieces
// of equal length, of which the last may be short or empty; the device and the matrix alone say how
// many. A piece adds its columns in their order,
// or, where codes are integers, the exact sums of groups that share a scale. Then the pieces' sums
// are added in their order. int8 has one exact sum. Columns past the last are zeros.
#extension GL_EXT_spirv_intrinsics : require
layout(constant_id = 6) const uint PIECES = 16;  // a multiple of 16
const int SLICES = int(PIECES), UNIT = 32;

layout(push_constant) uniform Arguments {
  uint64_t x;       // floats, or codes when the weights are integers
  uint64_t scales;  // of the codes' rows
  uint64_t w, y, ids, gate, tiles, order;
  uint64_t panel_bytes, matrix_bytes;
  int rows, n, k, depth;
  int x_stride, y_stride, x_divisor, id_step, z_step, x_step, gate_stride;
} a;

const bool INTEGERS = FORMAT == kI8 || FORMAT == kQ8_0 || FORMAT == kI4 || FORMAT == kGrouped;
// How rows of floats are read: 2: k is a multiple of a unit, and four columns are aligned; 1: four
// columns are aligned, and k is a multiple of four; 0: neither.
const uint X_READS = NUMBERS;

int Units() { return (a.k + UNIT - 1) / UNIT; }
int UnitsOfPiece() { return (Units() + SLICES - 1) / SLICES; }

// Rows [begin, end) of the matrix of weights `matrix`. `tiles` has how many there are, then expert,
// begin and end of each: places in `order`, which has rows of y.
struct Rows {
  int begin, end, matrix;
};
Rows RowsOfGroup(int height) {
  const int at = int(gl_WorkGroupID.y), z = int(gl_WorkGroupID.z);
  if (a.tiles != 0) {
    Ints tiles = Ints(a.tiles);
    if (at >= tiles.at[0]) return Rows(0, 0, 0);
    return Rows(tiles.at[3 * at + 2], tiles.at[3 * at + 3], tiles.at[3 * at + 1] * a.id_step + z);
  }
  const int begin = at * height;
  const int expert = a.ids != 0 ? Ints(a.ids).at[begin] : 0;
  return Rows(begin, min(begin + height, a.rows), expert * a.id_step + z);
}
int RowAt(int place) { return a.order != 0 ? Ints(a.order).at[place] : place; }

// The row of codes, and of their scales, that row r's product with matrix z takes.
int CodesRow(int r, int z) {
  const int row = r / a.x_divisor;
  return a.x_step != 0 ? row * int(gl_NumWorkGroups.z) + z : row;
}
// Where row r's input begins.
uint64_t InputOf(int r) {
  const int z = int(gl_WorkGroupID.z);
  if (INTEGERS) return a.x + uint64_t(CodesRow(r, z)) * uint64_t(a.depth);
  return a.x + 4ul * (uint64_t(r / a.x_divisor) * uint64_t(a.x_stride) + uint64_t(z * a.x_step));
}
// Columns c to c + 3 of a row.
vec4 FourOf(uint64_t row, int c) {
  if (X_READS == 2) return Fours(row).at[c / 4];
  if (X_READS == 1) {
    const vec4 four = Fours(row).at[min(c, a.k - 4) / 4];
    return c < a.k ? four : vec4(0.0);
  }
  vec4 four;
  [[unroll]] for (int j = 0; j < 4; ++j) {
    const float one = Floats(row).at[min(c + j, a.k - 1)];
    four[j] = c + j < a.k ? one : 0.0;
  }
  return four;
}

// Lines of floats: where that of column c lies, and the columns of one.
const int LINE_COLUMNS = FORMAT == kF32 ? 1 : FORMAT == kBF16 || FORMAT == kFp16 ? 2 : 4;
uint64_t FloatLines(uint64_t panel, int c) {
  if (FORMAT != kFp8) return panel + 64ul * uint64_t(c / LINE_COLUMNS);
  return panel + uint64_t(c / kFp8Columns * kFp8Bytes + 64 + c % kFp8Columns / 4 * 64);
}
// Four outputs' weights of column j of a line.
vec4 OfLine(uvec4 line, int j, vec4 scale) {
  if (FORMAT == kF32) return uintBitsToFloat(line);
  if (FORMAT == kBF16) return uintBitsToFloat(j == 0 ? line << 16 : line & 0xffff0000u);
  vec4 codes;
  if (FORMAT == kFp16) {
    [[unroll]] for (int o = 0; o < 4; ++o) {
      codes[o] = OfF16(bitfieldExtract(line[2 * j + o / 2], 16 * (o & 1), 16));
    }
    return codes;
  }
  [[unroll]] for (int o = 0; o < 4; ++o) codes[o] = Fp8At(line, o, j);
  return codes * scale;
}
vec4 Fp8Scale(uint64_t panel, int quad, int c) {
  if (FORMAT != kFp8) return vec4(1.0);
  return Fours(panel + uint64_t(c / kFp8Columns * kFp8Bytes)).at[quad];
}

// The exact sum of the products of four signed bytes each, by OpSDot where that is fast.
const bool DOTS = (LAYOUT >> 25 & 1u) != 0;
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019],
                  id = 4450) int SignedDot(uint x, uint y, spirv_literal int packed);
int Dot(uint x, uint y) {
  int sum = 0;
  if (DOTS) {
    sum = SignedDot(x, y, 0);
  } else {
    [[unroll]] for (int j = 0; j < 4; ++j) sum += SignedByte(x, j) * SignedByte(y, j);
  }
  return sum;
}

// Codes of integers: lines of a unit, and the groups that share a scale.
const int CODE_BITS = FORMAT == kI4 ? 4 : FORMAT == kGrouped ? BITS : 8;
const int UNIT_GROUPS = FORMAT == kGrouped && GROUP == 16 ? 2 : 1;
uint64_t BlockOf(uint64_t panel, int unit) {
  if (FORMAT == kI8) return panel;
  if (FORMAT == kGrouped) return panel + uint64_t(unit * UNIT / BLOCK) * uint64_t(BlockBytes());
  return panel + uint64_t(unit / 2 * (64 + 2 * CODE_BITS * 64));
}
uint64_t CodeLines(uint64_t panel, int unit) {
  if (FORMAT == kI8) return panel + 512ul * uint64_t(unit);
  const uint64_t block = BlockOf(panel, unit);
  if (FORMAT == kGrouped) {
    return block + uint64_t(CodesOffset() + unit * UNIT % BLOCK / 32 * BITS * 64);
  }
  return block + uint64_t(64 + unit % 2 * CODE_BITS * 64);
}
vec4 UnitScales(uint64_t panel, int unit, int group, int quad) {
  const uint64_t block = BlockOf(panel, unit);
  if (FORMAT == kGrouped) return ScalesAt(block, quad, unit * UNIT % BLOCK + 16 * group);
  return OfHalves(Pairs(block).at[unit % 2 * 4 + quad]);
}
vec4 UnitBases(uint64_t panel, int unit, int group, int quad) {
  return BasesAt(BlockOf(panel, unit), quad, unit * UNIT % BLOCK + 16 * group);
}

// What codes stand for, without the centre, in each of the four bytes of a word.
shared uint mapped[64];
uint Less(uint x, uint y) {  // byte by byte
  const uint high = 0x80808080u;
  return ((x | high) - (y & ~high)) ^ ((x ^ ~y) & high);
}
const uint CENTRES = uint(CENTRE) * 0x01010101u;
void FillMapped(int me) {
  if (!MAPPED) return;
  if (me < 64) {
    const uint code = uint(me & 15);
    const uint value = Less(Mapped(code), uint(CENTRE)) & 255u;
    mapped[me] = value << (me / 16 * 8);
  }
  barrier();
}
// Codes as signed bytes: with REST still to be subtracted.
const int REST = FORMAT == kI4 ? 8 : FORMAT == kGrouped && !MAPPED && BITS != 8 ? CENTRE : 0;
uint SignedCodes(uint codes) {
  if (FORMAT != kGrouped) return codes;
  if (MAPPED) {
    return mapped[codes & 255u] | mapped[16u + (codes >> 8 & 255u)] |
           mapped[32u + (codes >> 16 & 255u)] | mapped[48u + (codes >> 24)];
  }
  return BITS == 8 ? Less(codes, CENTRES) : codes;
}
// Word t of a unit's codes comes from a line of each plane (weights.glsl).
bool HasPlane(int plane) { return (CODE_BITS & plane) != 0; }
int LineOfPlane(int plane, int t) {
  const int first = plane >= 4 ? 0 : plane == 2 ? CODE_BITS & 4 : CODE_BITS & 6;
  return first + t * plane / 8;
}
uvec4 BitsOfPlane(int plane, int t, uint64_t lines, int quad) {
  const uvec4 line = Lines(lines).at[LineOfPlane(plane, t) * 4 + quad];
  const int shift = plane == 4 ? 0 : plane == 2 ? CODE_BITS & 4 : CODE_BITS & 6;
  const uint mask = ((1u << plane) - 1u) * 0x01010101u;
  return (line >> (t % (8 / plane) * plane) & mask) << shift;
}
// Without a loop over planes, which drivers may not unroll.
uvec4 BitsAt(uint64_t panel, int unit, int t, int quad) {
  const uint64_t lines = CodeLines(panel, unit);
  uvec4 codes = uvec4(0);
  if (CODE_BITS == 8) codes = Lines(lines).at[t * 4 + quad];
  if (HasPlane(4)) codes |= BitsOfPlane(4, t, lines, quad);
  if (HasPlane(2)) codes |= BitsOfPlane(2, t, lines, quad);
  if (HasPlane(1)) codes |= BitsOfPlane(1, t, lines, quad);
  return codes;
}

// A finished sum of row r and an output's lane.
void WriteSum(float sum, int r, int output_) {
  const int z = int(gl_WorkGroupID.z);
  if (INTEGERS) sum *= Floats(a.scales).at[CodesRow(r, z)];
  if (a.gate != 0) sum *= Sigmoid(RowOf(a.gate, r, a.gate_stride).at[z]);
  RowOf(a.y, r, a.y_stride).at[z * a.z_step + output_] = sum;
}
float I8Scale(uint64_t panel, int lane) {
  return Floats(panel + uint64_t(a.depth) * 16ul).at[lane];
}
