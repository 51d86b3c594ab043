// Peak loops for AVX2 with FMA; see kernels/peak.h.
#include "ops/cpu/kernels/peak.h"

#include <immintrin.h>

namespace braid::ops::cpu {
namespace {

// Enough chains to cover the latency of two units.
constexpr int kChains = 12;
constexpr int64_t kAheadBytes = 2048;

float Fma(int64_t rounds, float start) {
  __m256 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(start + static_cast<float>(i));
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(start);
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
  }
  __m256 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_add_ps(all, sums[i]);
  return _mm256_cvtss_f32(all);
}

template <int kStreams>
int64_t Read(const std::byte* data, int64_t bytes) {
  const int64_t stream = bytes / kStreams;
  __m256i sums[kStreams] = {};
  for (int64_t at = 0; at < stream; at += 64) {
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* line = data + s * stream + at;
      if (kStreams > 1) {
        _mm_prefetch(reinterpret_cast<const char*>(line + kAheadBytes), _MM_HINT_T0);
      }
      const auto* in = reinterpret_cast<const __m256i*>(line);
      sums[s] = _mm256_xor_si256(sums[s], _mm256_load_si256(in));
      sums[s] = _mm256_xor_si256(sums[s], _mm256_load_si256(in + 1));
    }
  }
  for (int s = 1; s < kStreams; ++s) sums[0] = _mm256_xor_si256(sums[0], sums[s]);
  const __m128i half =
      _mm_xor_si128(_mm256_castsi256_si128(sums[0]), _mm256_extracti128_si256(sums[0], 1));
  return _mm_cvtsi128_si64(half) ^ _mm_extract_epi64(half, 1);
}

void Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  const auto* in = reinterpret_cast<const __m256i*>(from);
  auto* out = reinterpret_cast<__m256i*>(to);
  for (int64_t i = 0; i < bytes / 32; ++i) _mm256_stream_si256(out + i, _mm256_load_si256(in + i));
  _mm_sfence();
}

}  // namespace

PeakLoop PeakFmaAvx2() { return {2.0 * 8 * kChains, Fma}; }
MemoryLoops MemoryLoopsAvx2() { return {{Read<1>, Read<kStreamsMost>}, Copy}; }

}  // namespace braid::ops::cpu
