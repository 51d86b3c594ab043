// Rows of keys and values in a block (ops/attention.h has the layout): `dim` channels of slot
// `slot`, in the cache's type. Channels are read four at a time.
const uint kCacheF32 = 0, kCacheBf16 = 1, kCacheI8 = 2;
layout(constant_id = 1) const uint CACHE = 0;

uint64_t RowBytes(int dim) {
  return uint64_t(CACHE == kCacheF32 ? dim * 4 : CACHE == kCacheBf16 ? dim * 2 : dim);
}

// Channels 4 i to 4 i + 3, as they are stored: in one, two or four words.
uvec4 StoredAt(uint64_t row, int i) {
  if (CACHE == kCacheF32) return Lines(row).at[i];
  if (CACHE == kCacheBf16) return uvec4(Pairs(row).at[i], 0u, 0u);
  return uvec4(Words(row).at[i], 0u, 0u, 0u);
}
vec4 FourOf(uvec4 stored) {
  if (CACHE == kCacheF32) return uintBitsToFloat(stored);
  if (CACHE == kCacheBf16) {
    return uintBitsToFloat(uvec4(stored.x << 16, stored.x & 0xffff0000u, stored.y << 16,
                                 stored.y & 0xffff0000u));
  }
  const int word = int(stored.x);
  return vec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8), bitfieldExtract(word, 16, 8),
              bitfieldExtract(word, 24, 8));
}
