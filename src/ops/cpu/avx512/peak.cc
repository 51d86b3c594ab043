// Peak loops for AVX-512 and its dot products; see kernels/peak.h.
#include "ops/cpu/kernels/peak.h"

#include <immintrin.h>

namespace braid::ops::cpu {
namespace {

constexpr int kChains = 12;
constexpr int64_t kAheadBytes = 2048;

float Fma(int64_t rounds, float start) {
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(start + static_cast<float>(i));
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(start);
  for (int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

template <int kStreams>
int64_t Read(const std::byte* data, int64_t bytes) {
  const int64_t stream = bytes / kStreams;
  __m512i sums[kStreams];
  for (int s = 0; s < kStreams; ++s) sums[s] = _mm512_setzero_si512();
  for (int64_t at = 0; at < stream; at += 64) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* line = data + s * stream + at;
      if (kStreams > 1) {
        _mm_prefetch(reinterpret_cast<const char*>(line + kAheadBytes), _MM_HINT_T0);
      }
      sums[s] = _mm512_xor_si512(sums[s], _mm512_load_si512(line));
    }
  }
  for (int s = 1; s < kStreams; ++s) sums[0] = _mm512_xor_si512(sums[0], sums[s]);
  alignas(64) int64_t words[8];
  _mm512_store_si512(words, sums[0]);
  for (int i = 1; i < 8; ++i) words[0] ^= words[i];
  return words[0];
}

void Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_load_si512(from + at));
  }
  _mm_sfence();
}

}  // namespace

PeakLoop PeakFmaAvx512() { return {2.0 * 16 * kChains, Fma}; }
MemoryLoops MemoryLoopsAvx512() { return {{Read<1>, Read<kStreamsMost>}, Copy}; }

}  // namespace braid::ops::cpu
