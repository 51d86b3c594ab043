// Peak loops of AVX512-BF16 and AVX512-VNNI, which not every CPU with AVX-512 has; see
// kernels/peak.h.
#include <immintrin.h>

#include "ops/cpu/kernels/peak.h"

namespace braid::ops::cpu {
namespace {

constexpr int kChains = 12;

float DotBf16(int64_t rounds, float start) {
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(start + static_cast<float>(i));
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(start), _mm512_set1_ps(0.5f));
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.25f), _mm512_set1_ps(-start));
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

float DotInt8(int64_t rounds, float start) {
  __m512i sums[kChains];
  const auto seed = static_cast<int>(start);
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(seed + i);
  const __m512i a = _mm512_set1_epi32(0x01020304 + seed), b = _mm512_set1_epi32(0x02010403);
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return static_cast<float>(_mm512_cvtsi512_si32(sums[0]));
}

// What int4 in groups of 32 asks for beside the products, whatever holds the weights.
constexpr int kDotsPerGroup = 8;
float GroupsInt4(int64_t rounds, float start) {
  __m512i sums[kChains];
  __m512 totals[kChains];
  const auto seed = static_cast<int>(start);
  for (int i = 0; i < kChains; ++i) {
    sums[i] = _mm512_set1_epi32(seed + i);
    totals[i] = _mm512_set1_ps(start);
  }
  const __m512i a = _mm512_set1_epi32(0x01020304 + seed), b = _mm512_set1_epi32(0x02010403);
  const __m512 scale = _mm512_set1_ps(1e-6f * start);
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 8
    for (int dot = 0; dot < kDotsPerGroup; ++dot) {
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      totals[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i]), scale, totals[i]);
    }
  }
  for (int i = 1; i < kChains; ++i) totals[0] = _mm512_add_ps(totals[0], totals[i]);
  return _mm512_cvtss_f32(totals[0]);
}

}  // namespace

PeakLoop PeakDotBf16Avx512() { return {2.0 * 32 * kChains, DotBf16}; }
PeakLoop PeakDotInt8Avx512() { return {2.0 * 64 * kChains, DotInt8}; }
PeakLoop PeakGroupsInt4Avx512() { return {2.0 * 64 * kDotsPerGroup * kChains, GroupsInt4}; }

}  // namespace braid::ops::cpu
