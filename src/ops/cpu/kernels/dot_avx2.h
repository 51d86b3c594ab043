// int8 and int4 dot products of 32 bytes, with AVX2's instructions or AVX-VNNI's: `Madd` says
// which.
#pragma once

#include <immintrin.h>

#include "ops/cpu/kernels/dot.h"
#include "ops/cpu/kernels/grouped.h"
#include "ops/cpu/kernels/vec_avx2.h"

namespace braid::ops::cpu {

struct Ymm {
  using Sum = __m256i;
  using Line = __m256i;
  using Result = __m256;
  static constexpr int kVecs = 2, kTerms = 1;
  static constexpr int64_t kStep = 64, kBlockRows = kDotRows;
  static int64_t RowBytes(int64_t depth) { return Int8RowBytes(depth); }
  static Line Load(const std::byte* p, int = 0) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static __m256i Broadcast(const std::byte* p) {
    return _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p));
  }
  static void Store(float* y, Result value, int64_t lanes) {
    if (lanes >= 8) return _mm256_storeu_ps(y, value);
    if (lanes <= 0) return;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(lanes)), lane),
                        value);
  }
};

// Unsigned times signed bytes, by fours, onto a sum; two products of a <= 128 and |b| <= 127
// together do not overflow 16 bits.
struct MaddAvx2 {
  static __m256i Dot(__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum,
                            _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
  }
  // The same for any a: one product at a time.
  static __m256i DotWide(__m256i sum, __m256i a, __m256i b) {
    const __m256i even = _mm256_and_si256(a, _mm256_set1_epi16(0xff));
    return Dot(Dot(sum, even, b), _mm256_xor_si256(a, even), b);
  }
};

template <class Madd>
struct Int8Ymm : Ymm {
  static constexpr int kRows = 2, kPanels = 2, kFewRows = 1, kPanelsFew = 4;
  using Activation = __m256i;
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    WholeTile<Int8Ymm, R, P>(tile);
  }
  static Sum Start(const LineTile&, int) { return _mm256_setzero_si256(); }
  static Activation LoadActivation(const std::byte* p) { return Broadcast(p); }
  // The sign goes over to the activation, which is never -128 as a weight may be.
  static Sum Dot(Sum sum, Activation a, Line b) {
    return Madd::Dot(sum, _mm256_abs_epi8(b), _mm256_sign_epi8(a, b));
  }
  static Result Finish(const LineTile& t, int r, Sum sum, const std::byte* scales, int part) {
    const __m256 scale = _mm256_loadu_ps(reinterpret_cast<const float*>(scales) + 8 * part);
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale),
                         _mm256_set1_ps(t.scales[r]));
  }
};

// What formats with fp16 scales of groups share.
struct GroupYmm : Ymm {
  using GroupActivation = __m256i;
  static Result Zero() { return _mm256_setzero_ps(); }
  static GroupActivation LoadGroupActivation(const std::byte* p) { return Broadcast(p); }
  static __m256 LoadScale(const std::byte* p, int part) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + part));
  }
  static Result AddGroup(Result all, Sum sum, __m256 scale) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, all);
  }
  static Result Scale(Result all, float scale) { return _mm256_mul_ps(all, _mm256_set1_ps(scale)); }
};

template <class Madd>
struct Int4Ymm : GroupYmm {
  static constexpr int kRows = 2, kPanels = 1, kFewRows = 1, kPanelsFew = 2;
  static constexpr int kGroupLines = 4, kGroupTerms = 2;
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    GroupTile<Int4Ymm, R, P>(tile);
  }
  // Codes are stored plus 8.
  static Sum StartGroup(const int32_t* start) { return _mm256_set1_epi32(*start); }
  static void Split(const std::byte* p, Line (&terms)[2]) {
    const __m256i mask = _mm256_set1_epi8(15), both = Load(p);
    terms[0] = _mm256_and_si256(both, mask);
    terms[1] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
  }
  static Sum DotGroup(Sum sum, GroupActivation a, Line b) { return Madd::Dot(sum, b, a); }
};

template <class Madd>
struct Q8_0Ymm : GroupYmm {
  static constexpr int kRows = 2, kPanels = 1, kFewRows = 1, kPanelsFew = 2;
  static constexpr int kGroupLines = 8, kGroupTerms = 1;
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    GroupTile<Q8_0Ymm, R, P>(tile);
  }
  static Sum StartGroup(const int32_t*) { return _mm256_setzero_si256(); }
  static void Split(const std::byte* p, Line (&terms)[1]) { terms[0] = Load(p); }
  static Sum DotGroup(Sum sum, GroupActivation a, Line b) { return Int8Ymm<Madd>::Dot(sum, a, b); }
};

// The kernels for integer weights with these instructions. Sums of integers are exact: the bits are
// those of every instruction set.
template <class Madd, CpuNeed kNeeds>
inline constexpr GemmKernel kYmmKernels[] = {
    {WeightFormat::kI8, kNeeds, &kInt8Rows, false, PackInt8Avx2, DotGemm<Int8Ymm<Madd>>::Run},
    {WeightFormat::kQ8_0, kNeeds, &kInt8Rows, false, PackInt8Avx2, DotGemm<Q8_0Ymm<Madd>>::Run},
    {WeightFormat::kI4, kNeeds, &kInt8Rows, false, PackInt8Avx2, DotGemm<Int4Ymm<Madd>>::Run},
};

template <class Madd, CpuNeed kNeeds>
constexpr GemmKernelList YmmGemm() {
  const auto& kernels = kYmmKernels<Madd, kNeeds>;
  return {kernels, sizeof(kernels) / sizeof(GemmKernel)};
}

// The vectors of grouped formats (kernels/grouped.h).
template <class Madd>
struct GroupedYmm : VecAvx2 {
  using I = __m256i;
  using Bytes = __m256i;
  static constexpr int64_t kBytes = 32;
  static constexpr int kRegisters = 16, kRows = 2, kPanels = 2;

  static I Set(int32_t x) { return _mm256_set1_epi32(x); }
  static I LoadCodes(const std::byte* p) { return LoadBytes(p); }
  static I Broadcast(const std::byte* p) { return Set(*reinterpret_cast<const int32_t*>(p)); }
  template <bool kWide>
  static I Dot(I sum, I activations, I codes) {
    if constexpr (kWide) return Madd::DotWide(sum, codes, activations);
    return Madd::Dot(sum, codes, activations);
  }
  static F ToFloat(I x) { return _mm256_cvtepi32_ps(x); }

  static Bytes NoBytes() { return _mm256_setzero_si256(); }
  static Bytes LoadBytes(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void StoreBytes(std::byte* p, Bytes x) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), x);
  }
  static Bytes And(Bytes x, int byte) {
    return _mm256_and_si256(x, _mm256_set1_epi8(static_cast<char>(byte)));
  }
  static Bytes Or(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
  static Bytes Lookup(const uint8_t* values, Bytes codes) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
  }
  // In words of 16 bits, to the left where n < 0.
  template <int n>
  static Bytes Right(Bytes x) {
    if constexpr (n == 0) return x;
    if constexpr (n < 0) return _mm256_slli_epi16(x, -n);
    return _mm256_srli_epi16(x, n > 0 ? n : 0);
  }
  // Numbers of 8 outputs.
  template <NumberType kType>
  static F Number(const std::byte* p) {
    if constexpr (kType == NumberType::kF32) {
      return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    }
    if constexpr (kType == NumberType::kF16) {
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    if constexpr (kType == NumberType::kF16By8) {
      return _mm256_mul_ps(Number<NumberType::kF16>(p), _mm256_set1_ps(0.125f));
    }
    const __m128i bytes = _mm_loadu_si64(p);
    if constexpr (kType == NumberType::kI8) {
      return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
    const __m256i wide = _mm256_cvtepu8_epi32(bytes);
    if constexpr (kType == NumberType::kF8) {  // the bits in their places, 2^-120 of the number
      const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(wide, 7), 31);
      const __m256i rest = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(127)), 20);
      return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(rest, sign)),
                           _mm256_set1_ps(0x1p120f));
    }
    if constexpr (kType == NumberType::kE8M0) {
      const __m256i one = _mm256_set1_epi32(1);
      const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(wide, one), 23);
      const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), wide);
      const __m256i finite = _mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(wide, one));
      const __m256i nan = _mm256_cmpeq_epi32(wide, _mm256_set1_epi32(255));
      return _mm256_castsi256_ps(_mm256_blendv_epi8(finite, _mm256_set1_epi32(0x7fc00000), nan));
    }
    return _mm256_cvtepi32_ps(wide);
  }
};

template <class Madd, CpuNeed kNeeds>
GemmKernelList YmmGroupedGemm() {
  static constexpr GroupedKernels<GroupedYmm<Madd>, kNeeds> kKernels;
  return {kKernels.all, kGroupedCount};
}

}  // namespace braid::ops::cpu
