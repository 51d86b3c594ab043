// The channels of one head, held by a workgroup: their norm, their rotation by position, and their
// way into a row of a page (ops/attention.h, ops/rotary.h).
#include "angle.glsl"
const int kDimMax = 576;
shared float channels[kDimMax];

// The first `dim` channels: x / rms(x) * (offset + weight).
void NormChannels(uint64_t weight, int dim, float offset, float eps) {
  const int me = int(gl_LocalInvocationID.x);
  float squares = 0.0;
  for (int c = me; c < dim; c += THREADS) squares = fma(channels[c], channels[c], squares);
  const float scale = 1.0 / sqrt(SumOfAll(squares) / float(dim) + eps);
  for (int c = me; c < dim; c += THREADS) {
    channels[c] = channels[c] * scale * (offset + Floats(weight).at[c]);
  }
  barrier();
}

// Pairs of channels from the one numbered `begin` on: neighbours, or `pairs` channels apart.
void RotateChannels(int begin, int pairs, bool interleaved, uint64_t frequency, int position,
                    float scale) {
  for (int j = int(gl_LocalInvocationID.x); j < pairs; j += THREADS) {
    const vec2 turn = CosSin(float(position) * Floats(frequency).at[j]) * scale;
    const int one = begin + (interleaved ? 2 * j : j), other = one + (interleaved ? 1 : pairs);
    const float first = channels[one], second = channels[other];
    channels[one] = first * turn.x - second * turn.y;
    channels[other] = second * turn.x + first * turn.y;
  }
  barrier();
}

// The first `dim` channels into row `slot` of those at `rows`; int8 has its scales at `scales`.
void StoreChannels(uint64_t rows, uint64_t scales, int slot, int dim) {
  const int me = int(gl_LocalInvocationID.x);
  const uint64_t row = rows + uint64_t(slot) * RowBytes(dim);
  if (CACHE == kCacheF32) {
    for (int c = me; c < dim; c += THREADS) Floats(row).at[c] = channels[c];
  } else if (CACHE == kCacheBf16) {
    for (int w = me; w < dim / 2; w += THREADS) {
      Words(row).at[w] = Bf16Of(channels[2 * w]) | Bf16Of(channels[2 * w + 1]) << 16;
    }
  } else {
    float most = 0.0, bad = 0.0;
    for (int c = me; c < dim; c += THREADS) {
      const float value = abs(channels[c]);
      if (!(value < uintBitsToFloat(0x7f800000u))) bad = 1.0;
      most = max(most, value);
    }
    most = MaxOfAll(most);
    const bool not_finite = MaxOfAll(bad) > 0.0;
    const bool some = !not_finite && most >= uintBitsToFloat(0x0d800000u);  // 2^-100
    const float factor = some ? 127.0 / most : 0.0;
    for (int w = me; w < dim / 4; w += THREADS) {
      uint word = 0;
      for (int j = 0; some && j < 4; ++j) {
        word |= (uint(int(roundEven(channels[4 * w + j] * factor))) & 255u) << (8 * j);
      }
      Words(row).at[w] = word;
    }
    if (me == 0) {
      Floats(scales).at[slot] =
          not_finite ? uintBitsToFloat(0x7fc00000u) : some ? most / 127.0 : 0.0;
    }
  }
}
