// Weights as they lie packed (ops/packed.h): panels of 16 outputs, lines of 64 bytes.
const uint kF32 = 0, kBF16 = 1, kI8 = 2, kQ8_0 = 3, kI4 = 4;  // ShaderFormat (kernels.h)
layout(constant_id = 0) const uint FORMAT = 0;

float OfHalf(uint64_t address, int index) {
  const uint word = Words(address + 4ul * uint64_t(index / 2)).at[0];
  const vec2 both = unpackHalf2x16(word);
  return (index & 1) == 0 ? both.x : both.y;
}

int SignedByte(uint word, int index) { return bitfieldExtract(int(word), 8 * index, 8); }

// One weight of a panel whose rows have `depth` columns, padding included.
float WeightAt(uint64_t panel, int depth, int lane, int col) {
  if (FORMAT == kF32) return Floats(panel).at[col * 16 + lane];
  if (FORMAT == kBF16) {
    const uint word = Words(panel).at[col / 2 * 16 + lane];
    return (col & 1) == 0 ? OfBf16(word) : uintBitsToFloat(word & 0xffff0000u);
  }
  if (FORMAT == kI8) {
    const uint word = Words(panel).at[col / 4 * 16 + lane];
    return float(SignedByte(word, col & 3)) * Floats(panel).at[depth * 4 + lane];
  }
  const int block_words = FORMAT == kQ8_0 ? 16 + 256 : 16 + 128;
  const uint64_t block = panel + 4ul * uint64_t(col / 64) * uint64_t(block_words);
  const int at = col % 64;
  const float scale = OfHalf(block, at / 32 * 16 + lane);
  if (FORMAT == kQ8_0) {
    return float(SignedByte(Words(block).at[16 + at / 4 * 16 + lane], at & 3)) * scale;
  }
  const uint word = Words(block).at[16 + at / 8 * 16 + lane];
  const uint both = bitfieldExtract(word, 8 * (at & 3), 8);
  return float(int((at & 7) < 4 ? both & 15u : both >> 4) - 8) * scale;
}
