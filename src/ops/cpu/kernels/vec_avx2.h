// Eight fp32 lanes on AVX2 with FMA. Every function is one fixed sequence of instructions, so equal
// inputs give equal bits wherever it is used.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/kernels/sum_eight.h"

namespace braid::ops::cpu {

struct VecAvx2 {
  static constexpr int kLanes = 8;
  using F = __m256;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set1(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  // p stands on a multiple of the lanes; other threads see it after StoreFence.
  static void StorePastCaches(float* p, F x) { _mm256_stream_ps(p, x); }
  static void StoreFence() { _mm_sfence(); }
  // The first n < 8 lanes; the others are zero and untouched in memory.
  static F LoadSome(const float* p, int64_t n) { return _mm256_maskload_ps(p, Mask(n)); }
  static void StoreSome(float* p, F x, int64_t n) { _mm256_maskstore_ps(p, Mask(n), x); }

  // x, which the compiler must not load again for every use.
  static F InRegister(F x) {
    asm("" : "+x"(x));
    return x;
  }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static float Sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

  static float Sum(F x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  // out[i] = Sum(x[i]), i < 8.
  static void SumOfEach(const F* x, float* out) { Store(out, SumEight<VecAvx2>::Of(x)); }
  static float MaxLane(F x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  // Eight pairs of bf16: the first and the second of each pair.
  static F PairFirst(const void* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(LoadBits(p), 16));
  }
  static F PairSecond(const void* p) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm256_castsi256_ps(_mm256_and_si256(LoadBits(p), high));
  }
  // Of two columns of fp16 in turns of four rows: the first and the second column.
  static F F16First(const void* p) {
    const auto* turns = static_cast<const __m128i*>(p);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(turns[0], turns[1]));
  }
  static F F16Second(const void* p) {
    const auto* turns = static_cast<const __m128i*>(p);
    return _mm256_cvtph_ps(_mm_unpackhi_epi64(turns[0], turns[1]));
  }
  static F LoadBf16(const uint16_t* p) {
    __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // Round to nearest even; NaN payloads may become infinities' neighbours but stay NaN.
  static void StoreBf16(uint16_t* p, F x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }

  // A line of e4m3 codes of two pairs along k (ops/packed.h, kF8) as bf16 of their 256th part: 32
  // numbers of the first pair, then those of the second. A code moved up by 7 bits, its sign by one
  // more, is fp16 of that.
  static void WidenE4M3(const std::byte* line, uint16_t* out) {
    for (int part = 0; part < 2; ++part) {
      const __m256i codes = LoadBits(line + 32 * part), zero = _mm256_setzero_si256();
      StoreBits(out + 16 * part, Bf16OfCodes(_mm256_unpacklo_epi8(zero, codes)));
      StoreBits(out + 32 + 16 * part, Bf16OfCodes(_mm256_unpackhi_epi8(zero, codes)));
    }
  }

  // Integers of int8, and to them: to the nearest, ties to even.
  static F LoadI8(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadu_si64(p)));
  }
  static void StoreI8(int8_t* p, F x) {
    const __m256i whole = _mm256_cvtps_epi32(x);
    const __m128i halves =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storeu_si64(p, _mm_packs_epi16(halves, halves));
  }

  // exp(x): x = n ln 2 + r, polynomial of degree 6 in r (relative error below 2^-22); zero below
  // -87.3; NaN stays NaN.
  static F Exp(F x) {
    const F low = Set1(-87.33654f);
    const F clamped = _mm256_max_ps(low, _mm256_min_ps(Set1(88.72283f), x));
    const F n = _mm256_round_ps(Mul(clamped, Set1(1.44269504f)),
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    F r = Fma(n, Set1(-0.693359375f), clamped);
    r = Fma(n, Set1(2.12194440e-4f), r);
    F p = Set1(1.3888889e-3f);
    p = Fma(p, r, Set1(8.3333333e-3f));
    p = Fma(p, r, Set1(4.1666667e-2f));
    p = Fma(p, r, Set1(1.6666667e-1f));
    p = Fma(p, r, Set1(0.5f));
    p = Fma(p, r, Set1(1.0f));
    p = Fma(p, r, Set1(1.0f));
    // 2^n in two factors, for n may be 128.
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const F scaled = Mul(Mul(p, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_epi32(whole, half)));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), scaled);
  }

 private:
  static __m256i LoadBits(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static void StoreBits(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  // Codes stand in the upper bytes. Of fp32 the upper half is kept: a code has few enough bits.
  static __m256i Bf16OfCodes(__m256i codes) {
    const __m256i half = _mm256_and_si256(_mm256_srai_epi16(codes, 1),
                                          _mm256_set1_epi16(static_cast<int16_t>(0xbfff)));
    const __m256 first = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
    const __m256 second = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
    const __m256i upper = _mm256_packus_epi32(_mm256_srli_epi32(_mm256_castps_si256(first), 16),
                                              _mm256_srli_epi32(_mm256_castps_si256(second), 16));
    return _mm256_permute4x64_epi64(upper, 0xd8);
  }
  static __m256i Mask(int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
  }
  static F PowerOfTwo(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace braid::ops::cpu
