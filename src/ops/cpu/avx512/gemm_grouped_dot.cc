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
  static constexpr int kRegisters = 32, kRows = 4, kPanels = 4;

  static I Set(int32_t x) { return (I)_mm512_set1_epi32(x); }
  static I LoadCodes(const std::byte* p) { return (I)_mm512_load_si512(p); }
  static I Broadcast(const std::byte* p) { return Set(*reinterpret_cast<const int32_t*>(p)); }
  template <bool kWide>
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
  static Bytes Lookup(const uint8_t* values, Bytes codes) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes);
  }
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
    if constexpr (kType == NumberType::kF32) return _mm512_loadu_ps(p);
    if constexpr (kType == NumberType::kF16) {
      return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    if constexpr (kType == NumberType::kF16By8) {
      return _mm512_mul_ps(Number<NumberType::kF16>(p), _mm512_set1_ps(0.125f));
    }
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    if constexpr (kType == NumberType::kI8) {
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }
    const __m512i wide = _mm512_cvtepu8_epi32(bytes);
    if constexpr (kType == NumberType::kF8) {  // the bits in their places, 2^-120 of the number
      const __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(wide, 7), 31);
      const __m512i rest = _mm512_slli_epi32(_mm512_and_si512(wide, _mm512_set1_epi32(127)), 20);
      return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(rest, sign)),
                           _mm512_set1_ps(0x1p120f));
    }
    if constexpr (kType == NumberType::kE8M0) {
      const __m512i one = _mm512_set1_epi32(1);
      const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(wide, one), 23);
      const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), wide);
      const __m512i finite =
          _mm512_mask_blend_epi32(_mm512_cmple_epi32_mask(wide, one), normal, small);
      const __mmask16 nan = _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(255));
      return _mm512_castsi512_ps(
          _mm512_mask_blend_epi32(nan, finite, _mm512_set1_epi32(0x7fc00000)));
    }
    return _mm512_cvtepi32_ps(wide);
  }
};

}  // namespace

GemmKernelList Avx512GroupedGemm() {
  static constexpr GroupedKernels<GroupedZmm, CpuNeed::kAvx512Vnni> kKernels;
  return {kKernels.all, kGroupedCount};
}

}  // namespace braid::ops::cpu
