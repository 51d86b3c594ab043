// Quantised activations and GEMM of integers on AVX2.
#include <immintrin.h>

#include "ops/cpu/kernels/dot_avx2.h"

namespace braid::ops::cpu {
namespace {

// The largest |x|, as its bits: they order as the magnitudes do, with NaN above all.
int32_t LargestBits(const float* x, int64_t count) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  int64_t c = 0;
  for (; c + 8 <= count; c += 8) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + c));
    most = _mm256_max_epi32(most, _mm256_and_si256(bits, magnitude));
  }
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), most);
  int32_t result = 0;
  for (int32_t lane : lanes) result = lane > result ? lane : result;
  for (; c < count; ++c) {
    const int32_t bits = _mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(x[c]))) & 0x7fffffff;
    result = bits > result ? bits : result;
  }
  return result;
}

// 32 values, of which `count` are there; returns the sums of the first and of the last 16 after
// rounding.
struct Sums {
  int32_t first, last;
};
Sums Quantise32(const float* x, int64_t count, float factor, std::byte* out) {
  const __m256 scale = _mm256_set1_ps(factor);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) {
    const __m256i there =
        _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count) - 8 * i), lane);
    q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_maskload_ps(x + 8 * i, there), scale));
  }
  // Packing works within halves: fours come out as 0 2 4 6 1 3 5 7.
  const __m256i bytes = _mm256_permutevar8x32_epi32(
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])),
      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
  const __m256i sums =
      _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
  const __m256i pairs = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
  const __m256i s = _mm256_add_epi32(pairs, _mm256_shuffle_epi32(pairs, 0xb1));
  return {_mm_cvtsi128_si32(_mm256_castsi256_si128(s)),
          _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1))};
}

}  // namespace

void PackInt8Avx2(const PackTask& task) {
  float* scales = reinterpret_cast<float*>(task.block + task.count * task.depth_end);
  int32_t* totals = reinterpret_cast<int32_t*>(scales + task.count);
  int32_t* sums = totals + task.count;
  int32_t* half_sums = sums + task.depth_end / 32 * task.count;
  float ordered[32] = {};
  for (int64_t r = 0; r < task.count; ++r) {
    const int32_t bits = LargestBits(task.rows[r], task.end);
    const float most = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
    const bool finite = bits < 0x7f800000, some = most >= 0x1p-100f;
    const float factor = finite && some ? 127.0f / most : 0.0f;
    scales[r] = finite ? (some ? most / 127.0f : 0.0f) : __builtin_nanf("");
    totals[r] = 0;
    for (int64_t c = 0; c < task.depth_end; c += 32) {
      std::byte* out = task.block + (c / 64 * task.count + r) * 64 + c % 64;
      // A row that is not finite has no codes; its scale is NaN.
      const int64_t left = finite && task.end > c ? task.end - c : 0;
      const int64_t count = left < 32 ? left : 32;
      const float* x = task.rows[r] + c;
      if (task.order) {
        for (int64_t i = 0; i < count; ++i) ordered[i] = task.rows[r][task.order[c + i]];
        x = ordered;
      }
      const Sums sum = Quantise32(x, count, factor, out);
      sums[c / 32 * task.count + r] = -8 * (sum.first + sum.last);
      half_sums[c / 16 * task.count + r] = -8 * sum.first;
      half_sums[(c / 16 + 1) * task.count + r] = -8 * sum.last;
      totals[r] += sum.first + sum.last;
    }
  }
}

GemmKernelList Avx2Gemm() { return YmmGemm<MaddAvx2, CpuNeed::kAvx2>(); }
GemmKernelList Avx2GroupedGemm() { return YmmGroupedGemm<MaddAvx2, CpuNeed::kAvx2>(); }

}  // namespace braid::ops::cpu
