// GEMM of integers on AVX-VNNI: AVX2's width with one instruction for four products.
#include <immintrin.h>

#include "ops/cpu/kernels/dot_avx2.h"

namespace braid::ops::cpu {
namespace {

struct MaddVnni {
  static __m256i Dot(__m256i sum, __m256i a, __m256i b) {
    return _mm256_dpbusd_avx_epi32(sum, a, b);
  }
  static __m256i DotWide(__m256i sum, __m256i a, __m256i b) { return Dot(sum, a, b); }
};

}  // namespace

GemmKernelList AvxVnniGemm() { return YmmGemm<MaddVnni, CpuNeed::kAvxVnni>(); }
GemmKernelList AvxVnniGroupedGemm() { return YmmGroupedGemm<MaddVnni, CpuNeed::kAvxVnni>(); }

}  // namespace braid::ops::cpu
