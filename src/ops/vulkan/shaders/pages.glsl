// Rows of keys and values in a block (ops/attention.h has the layout): `dim` channels of slot
// `slot`, in the cache's type. Channels are read four at a time.
const uint kCacheF32 = 0, kCacheBf16 = 1, kCacheI8 = 2;
layout(constant_id = 1) const uint CACHE = 0;

uint64_t RowBytes(int dim) {
  return uint64_t(CACHE == kCacheF32 ? dim * 4 : CACHE == kCacheBf16 ? dim * 2 : dim);
}

// Channels 4 i to 4 i + 3.
vec4 FourAt(uint64_t row, int i) {
  if (CACHE == kCacheF32) {
    return uintBitsToFloat(Lines(row).at[i]);
  }
  if (CACHE == kCacheBf16) {
    const uvec2 two = Pairs(row).at[i];
    return uintBitsToFloat(
        uvec4(two.x << 16, two.x & 0xffff0000u, two.y << 16, two.y & 0xffff0000u));
  }
  const int word = int(Words(row).at[i]);
  return vec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8), bitfieldExtract(word, 16, 8),
              bitfieldExtract(word, 24, 8));
}
