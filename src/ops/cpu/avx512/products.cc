// Packing of left operands, and products on AVX-512's dot instructions (BF16).
#include <immintrin.h>

#include "ops/cpu/kernels/product.h"

namespace braid::cpu {
namespace {

// The first n of 16 lanes, n clipped to 0 … 16.
inline __mmask16 Lanes(int64_t n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}

}  // namespace

void PackBf16Avx512(const PackTask& task) {
  for (int64_t r = 0; r < task.count; ++r) {
    const float* x = task.rows[r] - task.begin;
    for (int64_t c = task.begin; c < task.depth_end; c += 32) {
      const __m512 low = _mm512_maskz_loadu_ps(Lanes(task.end - c), x + c);
      const __m512 high = _mm512_maskz_loadu_ps(Lanes(task.end - c - 16), x + c + 16);
      const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
      _mm512_storeu_si512(task.block + (c / 32 * task.count + r) * 64,
                          reinterpret_cast<__m512i>(both));
    }
  }
}

}  // namespace braid::cpu
