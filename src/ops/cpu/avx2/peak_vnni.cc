// The peak loop of AVX-VNNI, which not every CPU with AVX2 has; see kernels/peak.h.
#include <immintrin.h>

#include "ops/cpu/kernels/peak.h"

namespace braid::ops::cpu {
namespace {

constexpr int kChains = 12;

float Dot(int64_t rounds, float start) {
  __m256i sums[kChains];
  const auto seed = static_cast<int>(start);
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi32(seed + i);
  const __m256i a = _mm256_set1_epi32(0x01020304 + seed), b = _mm256_set1_epi32(0x02010403);
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  return static_cast<float>(_mm256_cvtsi256_si32(sums[0]));
}

}  // namespace

PeakLoop PeakDotInt8Avx2() { return {2.0 * 32 * kChains, Dot}; }

}  // namespace braid::ops::cpu
