// GEMM of grouped formats (kernels/grouped.h) on AVX512-VNNI.
#include <immintrin.h>

#include "ops/cpu/kernels/grouped.h"
#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::ops::cpu {
namespace {

struct GroupedZmm : VecAvx512 {
  // Not __m512i, whose arrays GCC 12 also writes to memory at every step.
  using I = __v16si;
  using Bytes = __m512i;
  static constexpr int64_t kBytes = 64;
  static constexpr int kRows = 6, kPanels = 2, kFewRows = 2, kPanelsFew = 4;

  static I Set(int32_t x) { return (I)_mm512_set1_epi32(x); }
  static I LoadCodes(const std::byte* p) { return (I)_mm512_load_si512(p); }
  static I Broadcast(const std::byte* p) { return Set(*reinterpret_cast<const int32_t*>(p)); }
  static I Dot(I sum, I activations, I codes) {
    return (I)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)activations);
  }
  static F ToFloat(I x) { return _mm512_cvtepi32_ps((__m512i)x); }

  static Bytes NoBytes() { return _mm512_setzero_si512(); }
  static Bytes LoadBytes(const std::byte* p) { return _mm512_loadu_si512(p); }
  static void StoreBytes(std::byte* p, Bytes x) { _mm512_store_si512(p, x); }
  static Bytes And(Bytes x, int byte) {
    return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(byte)));
  }
  static Bytes Or(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
  // In words of 16 bits, to the left where n < 0.
  template <int n>
  static Bytes Right(Bytes x) {
    if constexpr (n == 0) return x;
    if constexpr (n < 0) return _mm512_slli_epi16(x, -n);
    return _mm512_srli_epi16(x, n > 0 ? n : 0);
  }
  // Numbers of 16 outputs.
  template <NumberType kType>
  static F Number(const std::byte* p) {
    if constexpr (kType == NumberType::kF16) {
      return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    } else {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      const bool is_signed = kType == NumberType::kI8;
      return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(bytes)
                                          : _mm512_cvtepu8_epi32(bytes));
    }
  }
};

}  // namespace

GemmKernelList Avx512GroupedGemm() {
  static constexpr GroupedKernels<GroupedZmm, CpuNeed::kAvx512Vnni> kKernels;
  return {kKernels.all, kGroupedCount};
}

}  // namespace braid::ops::cpu
