// Packing in bf16, and GEMM on AVX-512's dot instructions: BF16 and VNNI.
#include <immintrin.h>

#include "ops/cpu/kernels/dot.h"

namespace braid::ops::cpu {
namespace {

// The first n of 16 lanes, n clipped to 0 … 16.
inline __mmask16 Lanes(int64_t n) {
  const uint32_t lanes = n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1;
  return static_cast<__mmask16>(lanes);
}

struct Zmm {
  using Line = __m512i;
  using Activation = __m512i;
  using Result = __m512;
  static constexpr int kVecs = 1, kTerms = 1;
  static constexpr int64_t kStep = 64, kBlockRows = kDotRows;
  static int64_t RowBytes(int64_t depth) { return Int8RowBytes(depth); }
  static Activation LoadActivation(const std::byte* p) {
    return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p));
  }
  static void Store(float* y, Result value, int64_t lanes) {
    _mm512_mask_storeu_ps(y, Lanes(lanes), value);
  }
};

struct Bf16Zmm : Zmm {
  using Sum = __m512;
  static constexpr int kRows = 8, kPanels = 2, kFewRows = 4, kPanelsFew = 4;
  static constexpr int64_t kStep = 32;
  static int64_t RowBytes(int64_t depth) { return 2 * depth; }
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    WholeTile<Bf16Zmm, R, P>(tile);
  }
  static Sum Start(const LineTile&, int) { return _mm512_setzero_ps(); }
  static Line Load(const std::byte* p, int) { return _mm512_loadu_si512(p); }
  static Sum Dot(Sum sum, Activation a, Line b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static Result Finish(const LineTile&, int, Sum sum, const std::byte*, int) { return sum; }
};

// The instruction takes one unsigned operand: 128 is added to weights, and 128 times the row's sum
// is subtracted.
struct Int8Zmm : Zmm {
  // Not __m512i, whose arrays GCC 12 also writes to memory at every step.
  using Sum = __v16si;
  static constexpr int kRows = 8, kPanels = 2, kFewRows = 4, kPanelsFew = 4;
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    WholeTile<Int8Zmm, R, P>(tile);
  }
  static Sum Start(const LineTile& t, int r) { return (Sum)_mm512_set1_epi32(-128 * t.totals[r]); }
  static Line Load(const std::byte* p, int) {
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128));
  }
  static Sum Dot(Sum sum, Activation a, Line b) {
    return (Sum)_mm512_dpbusd_epi32((__m512i)sum, b, a);
  }
  static Result Finish(const LineTile& t, int r, Sum sum, const std::byte* scales, int) {
    return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps((__m512i)sum), _mm512_loadu_ps(scales)),
                         _mm512_set1_ps(t.scales[r]));
  }
};

// What formats with fp16 scales of groups share.
struct GroupZmm : Zmm {
  using Sum = __v16si;
  using GroupActivation = __m512i;
  static Result Zero() { return _mm512_setzero_ps(); }
  static GroupActivation LoadGroupActivation(const std::byte* p) { return LoadActivation(p); }
  static Sum DotGroup(Sum sum, GroupActivation a, Line b) {
    return (Sum)_mm512_dpbusd_epi32((__m512i)sum, b, a);
  }
  static __m512 LoadScale(const std::byte* p, int) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Result AddGroup(Result all, Sum sum, __m512 scale) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps((__m512i)sum), scale, all);
  }
  static Result Scale(Result all, float scale) { return _mm512_mul_ps(all, _mm512_set1_ps(scale)); }
};

struct Int4Zmm : GroupZmm {
  static constexpr int kRows = 5, kPanels = 2, kFewRows = 2, kPanelsFew = 4;
  static constexpr int kGroupLines = 4, kGroupTerms = 2;
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    GroupTile<Int4Zmm, R, P>(tile);
  }
  // Codes are stored plus 8.
  static Sum StartGroup(const int32_t* start) { return (Sum)_mm512_set1_epi32(*start); }
  static void Split(const std::byte* p, Line (&terms)[2]) {
    const __m512i mask = _mm512_set1_epi8(15), both = _mm512_loadu_si512(p);
    terms[0] = _mm512_and_si512(both, mask);
    terms[1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
};

struct Q8_0Zmm : GroupZmm {
  static constexpr int kRows = 6, kPanels = 2, kFewRows = 2, kPanelsFew = 4;
  static constexpr int kGroupLines = 8, kGroupTerms = 1;
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    GroupTile<Q8_0Zmm, R, P>(tile);
  }
  // Weights are moved up by 128; the row's sums come times -8.
  static Sum StartGroup(const int32_t* start) { return (Sum)_mm512_set1_epi32(16 * *start); }
  static void Split(const std::byte* p, Line (&terms)[1]) { terms[0] = Int8Zmm::Load(p, 0); }
};

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

// Pairs of terms ascending: the second of a pair is added, then the first (VDPBF16PS).
void Bf16Avx512(const GemmTask& task) { DotGemm<Bf16Zmm>::Run(task); }

GemmKernelList Avx512DotGemm() {
  static constexpr GemmKernel kKernels[] = {
      {WeightFormat::kBF16, CpuNeed::kAvx512Bf16, &kBf16Rows, true, PackBf16Avx512, Bf16Avx512},
      {WeightFormat::kI8, CpuNeed::kAvx512Vnni, &kInt8Rows, false, PackInt8Avx2,
       DotGemm<Int8Zmm>::Run},
      {WeightFormat::kQ8_0, CpuNeed::kAvx512Vnni, &kInt8Rows, false, PackInt8Avx2,
       DotGemm<Q8_0Zmm>::Run},
      {WeightFormat::kI4, CpuNeed::kAvx512Vnni, &kInt8Rows, false, PackInt8Avx2,
       DotGemm<Int4Zmm>::Run},
  };
  return {kKernels, sizeof(kKernels) / sizeof(GemmKernel)};
}

}  // namespace braid::ops::cpu
