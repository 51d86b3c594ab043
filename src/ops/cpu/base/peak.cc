// Peak loops for SSE2, which every x86-64 has; see kernels/peak.h.
#include "ops/cpu/kernels/peak.h"

#include <immintrin.h>

namespace braid::ops::cpu {
namespace {

constexpr int kChains = 12;  // of a multiplication and an addition each, in 16 registers

float Fma(int64_t rounds, float start) {
  __m128 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm_set1_ps(start + static_cast<float>(i));
  const __m128 factor = _mm_set1_ps(0.999f), term = _mm_set1_ps(start);
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm_add_ps(_mm_mul_ps(sums[i], factor), term);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm_add_ps(sums[0], sums[i]);
  return _mm_cvtss_f32(sums[0]);
}

template <int kStreams>
int64_t Read(const std::byte* data, int64_t bytes) {
  const int64_t stream = bytes / kStreams;
  __m128i sums[kStreams] = {};
  for (int64_t at = 0; at < stream; at += 64) {
    for (int s = 0; s < kStreams; ++s) {
      const auto* line = reinterpret_cast<const __m128i*>(data + s * stream + at);
      for (int i = 0; i < 4; ++i) sums[s] = _mm_xor_si128(sums[s], _mm_load_si128(line + i));
    }
  }
  for (int s = 1; s < kStreams; ++s) sums[0] = _mm_xor_si128(sums[0], sums[s]);
  return _mm_cvtsi128_si64(sums[0]) ^ _mm_cvtsi128_si64(_mm_unpackhi_epi64(sums[0], sums[0]));
}

void Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  const auto* in = reinterpret_cast<const __m128i*>(from);
  auto* out = reinterpret_cast<__m128i*>(to);
  for (int64_t i = 0; i < bytes / 16; ++i) _mm_stream_si128(out + i, _mm_load_si128(in + i));
  _mm_sfence();
}

}  // namespace

PeakLoop PeakFmaBase() { return {2.0 * 4 * kChains, Fma}; }
MemoryLoops MemoryLoopsBase() { return {{Read<1>, Read<kStreamsMost>}, Copy}; }

}  // namespace braid::ops::cpu
