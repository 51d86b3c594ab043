// Weights as they lie packed (ops/packed.h): panels of 16 outputs, lines of 64 bytes.
// Grouped formats (ops/cpu/kernels/weight_format.h) are constants too: FormatConstants (kernels.h).
const uint kF32 = 0, kBF16 = 1, kI8 = 2, kQ8_0 = 3, kI4 = 4, kGrouped = 5, kFp8 = 6,
           kFp16 = 7;
layout(constant_id = 0) const uint LAYOUT = 0;
layout(constant_id = 1) const uint NUMBERS = 0;  // a byte each: type | log2 of columns << 4
layout(constant_id = 2) const uint VALUES0 = 0;  // what codes stand for, a byte each
layout(constant_id = 3) const uint VALUES1 = 0;
layout(constant_id = 4) const uint VALUES2 = 0;
layout(constant_id = 5) const uint VALUES3 = 0;
const uint FORMAT = LAYOUT & 0xffu;
const int BITS = int(LAYOUT >> 8 & 15u), CENTRE = int(LAYOUT >> 12 & 255u);
const int BLOCK = 64 << int(LAYOUT >> 20 & 3u), GROUP = 16 << int(LAYOUT >> 22 & 1u);
const bool DIVIDES = (LAYOUT >> 23 & 1u) != 0, MAPPED = (LAYOUT >> 24 & 1u) != 0;

// Two halves as floats.
vec4 OfHalves(uvec2 words) { return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y)); }

int SignedByte(uint word, int index) { return bitfieldExtract(int(word), 8 * index, 8); }

// NumberType.
const int kNone = 0, kNumberF32 = 1, kF16 = 2, kF16By8 = 3, kU8 = 4, kSigned8 = 5, kF8 = 6,
          kFirst = 8;  // the first number again
int NumberType(int i) { return int(NUMBERS >> (8 * i) & 15u); }
int NumberColumns(int i) { return 1 << int(NUMBERS >> (8 * i + 4) & 15u); }
int NumberBytes(int i) {
  const int type = NumberType(i);
  return type == kNone || type == kFirst ? 0 : type == kNumberF32 ? 4 : type <= kF16By8 ? 2 : 1;
}
// Where number i begins in a block.
int NumberOffset(int i) {
  int offset = 0;
  for (int j = 0; j < i; ++j) offset += BLOCK / NumberColumns(j) * 16 * NumberBytes(j);
  return offset;
}
int CodesOffset() { return (NumberOffset(4) + 63) / 64 * 64; }
int BlockBytes() { return CodesOffset() + BLOCK * 2 * BITS; }

float OfE4M3(uint code) {
  const uint magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return uintBitsToFloat(0x7fc00000u);
  const float x = magnitude < 8u ? float(magnitude) * 0.001953125
                                 : uintBitsToFloat((magnitude << 20) + 0x3c000000u);
  return code >= 0x80u ? -x : x;
}
// All of fp16, subnormal numbers too, which unpackHalf2x16 may take for zero.
float OfF16(uint bits) {
  const uint magnitude = bits & 0x7fffu;
  const float x = magnitude < 0x400u    ? float(magnitude) * 5.9604644775390625e-8
                  : magnitude < 0x7c00u ? uintBitsToFloat((magnitude << 13) + 0x38000000u)
                                        : uintBitsToFloat((magnitude << 13) | 0x7f800000u);
  return (bits & 0x8000u) != 0 ? -x : x;
}
// 2^(code - 128), as precisely as fp32 has it.
float HalfOfE8M0(uint code) {
  if (code == 255u) return uintBitsToFloat(0x7fc00000u);
  return code > 1u ? uintBitsToFloat((code - 1u) << 23) : uintBitsToFloat(0x200000u << code);
}

// Number i of a column of a block, of four outputs; 1 where there is none.
vec4 NumbersAt(uint64_t block, int index, int quad, int col) {
  const int i = NumberType(index) == kFirst ? 0 : index, type = NumberType(i);
  if (type == kNone) return vec4(1.0);
  const uint64_t at = block + uint64_t(NumberOffset(i) + (col / NumberColumns(i) * 16 + 4 * quad) *
                                                             NumberBytes(i));
  if (type == kNumberF32) return uintBitsToFloat(Lines(at).at[0]);
  if (type <= kF16By8) {
    const vec4 values = OfHalves(Pairs(at).at[0]);
    return type == kF16By8 ? values * 0.125 : values;
  }
  const uint word = Words(at).at[0];
  vec4 values;
  [[unroll]] for (int o = 0; o < 4; ++o) {
    const uint code = bitfieldExtract(word, 8 * o, 8);
    values[o] = type == kSigned8 ? float(SignedByte(word, o))
                : type == kU8    ? float(code)
                : type == kF8    ? OfE4M3(code)
                                 : HalfOfE8M0(code);
  }
  return values;
}
vec4 ScalesAt(uint64_t block, int quad, int col) {
  const vec4 first = NumbersAt(block, 0, quad, col), second = NumbersAt(block, 1, quad, col);
  if (!DIVIDES) return first * second;
  return mix(second / first, vec4(0.0), equal(first, vec4(0.0)));
}
bool HasBase() { return NumberType(2) != kNone; }
vec4 BasesAt(uint64_t block, int quad, int col) {
  return NumbersAt(block, 2, quad, col) * NumbersAt(block, 3, quad, col);
}

// Planes of the codes of 32 columns: the lowest bit of a plane in a code is also its first line.
int PlaneShift(int plane) { return plane >= 4 ? 0 : plane == 2 ? BITS & 4 : BITS & 6; }
// What a code stands for, before the centre is subtracted.
uint Mapped(uint code) {
  if (!MAPPED) return code;
  const uint word = code < 4u ? VALUES0 : code < 8u ? VALUES1 : code < 12u ? VALUES2 : VALUES3;
  return bitfieldExtract(word, 8 * int(code & 3u), 8);
}

float GroupedWeightAt(uint64_t panel, int lane, int col) {
  const uint64_t block = panel + uint64_t(col / BLOCK) * uint64_t(BlockBytes());
  const int at = col % BLOCK, word = at % 32 / 4;
  const uint64_t lines = block + uint64_t(CodesOffset() + at / 32 * BITS * 64);
  uint code = 0;
  [[unroll]] for (int plane = 8; plane > 0; plane /= 2) {
    if ((BITS & plane) == 0) continue;
    const int per_line = 8 / plane, line = PlaneShift(plane) + word / per_line;
    const uint bits = bitfieldExtract(Words(lines).at[line * 16 + lane], 8 * (at & 3), 8);
    code |= (bits >> (word % per_line * plane) & ((1u << plane) - 1u)) << PlaneShift(plane);
  }
  precise const float scaled =
      float(int(Mapped(code)) - CENTRE) * ScalesAt(block, lane / 4, at)[lane % 4];
  if (!HasBase()) return scaled;
  precise const float based = scaled - BasesAt(block, lane / 4, at)[lane % 4];
  return based;
}

// fp8: blocks of 128 columns, 16 scales before 32 lines of four columns each. A line's pairs of
// columns change in turns of four outputs.
const int kFp8Columns = 128, kFp8Bytes = 64 + 32 * 64;
// Column j of a line, of output o of the four in `words`.
float Fp8At(uvec4 words, int o, int j) {
  return OfE4M3(bitfieldExtract(words[j / 2 * 2 + o / 2], 8 * ((o & 1) * 2 + (j & 1)), 8));
}
float Fp8WeightAt(uint64_t panel, int lane, int col) {
  const uint64_t block = panel + uint64_t(col / kFp8Columns) * uint64_t(kFp8Bytes);
  const int line = col % kFp8Columns / 4;
  const uvec4 words = Lines(block + 64ul).at[line * 4 + lane / 4];
  return Fp8At(words, lane % 4, col % 4) * Floats(block).at[lane];
}

// One weight of a panel whose rows have `depth` columns, padding included.
float WeightAt(uint64_t panel, int depth, int lane, int col) {
  if (FORMAT == kF32) return Floats(panel).at[col * 16 + lane];
  if (FORMAT == kBF16) {
    const uint word = Words(panel).at[col / 2 * 16 + lane];
    return (col & 1) == 0 ? OfBf16(word) : uintBitsToFloat(word & 0xffff0000u);
  }
  if (FORMAT == kFp16) {
    const int word = col / 2 * 16 + lane / 4 * 4 + (col & 1) * 2 + (lane & 3) / 2;
    return OfF16(bitfieldExtract(Words(panel).at[word], 16 * (lane & 1), 16));
  }
  if (FORMAT == kI8) {
    const uint word = Words(panel).at[col / 4 * 16 + lane];
    return float(SignedByte(word, col & 3)) * Floats(panel).at[depth * 4 + lane];
  }
  if (FORMAT == kGrouped) return GroupedWeightAt(panel, lane, col);
  if (FORMAT == kFp8) return Fp8WeightAt(panel, lane, col);
  const int block_words = FORMAT == kQ8_0 ? 16 + 256 : 16 + 128;
  const uint64_t block = panel + 4ul * uint64_t(col / 64) * uint64_t(block_words);
  const int at = col % 64;
  const float scale = OfHalves(Pairs(block).at[at / 32 * 4 + lane / 4])[lane % 4];
  if (FORMAT == kQ8_0) {
    return float(SignedByte(Words(block).at[16 + at / 4 * 16 + lane], at & 3)) * scale;
  }
  const uint word = Words(block).at[16 + at / 8 * 16 + lane];
  const uint both = bitfieldExtract(word, 8 * (at & 3), 8);
  return float(int((at & 7) < 4 ? both & 15u : both >> 4) - 8) * scale;
}
