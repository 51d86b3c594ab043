// Sixteen fp32 lanes on AVX-512 (F, BW, DQ, VL). Every function is one fixed sequence of
// instructions, so equal inputs give equal bits wherever it is used.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/kernels/sum_eight.h"

namespace braid::ops::cpu {

struct VecAvx512 {
  static constexpr int kLanes = 16;
  using F = __m512;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set1(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  // p stands on a multiple of the lanes; other threads see it after StoreFence.
  static void StorePastCaches(float* p, F x) { _mm512_stream_ps(p, x); }
  static void StoreFence() { _mm_sfence(); }
  // The first n < 16 lanes; the others are zero and untouched in memory.
  static F LoadSome(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(Mask(n), p); }
  static void StoreSome(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, Mask(n), x); }

  // x, which the compiler must not load again for every use.
  static F InRegister(F x) {
    asm("" : "+v"(x));
    return x;
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static float Sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

  // Halves, quarters, then pairs: lane i is added to lane i + 8, i + 4, i + 2, i + 1.
  static float Sum(F x) {
    const __m256 half = _mm256_add_ps(Low(x), High(x));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  // out[i] = Sum(x[i]), i < 8.
  static void SumOfEach(const F* x, float* out) {
    __m256 halves[8];
    for (int i = 0; i < 8; ++i) halves[i] = _mm256_add_ps(Low(x[i]), High(x[i]));
    _mm256_storeu_ps(out, SumEight<VecAvx512>::Of(halves));
  }
  static float MaxLane(F x) {
    const __m256 half = _mm256_max_ps(Low(x), High(x));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  // Sixteen pairs of bf16: the first and the second of each pair.
  static F PairFirst(const void* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
  }
  static F PairSecond(const void* p) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high));
  }
  // Of two columns of fp16 in turns of four rows: the first and the second column.
  static F F16First(const void* p) { return OfTurns(p, 0); }
  static F F16Second(const void* p) { return OfTurns(p, 1); }
  static F OfTurns(const void* p, int64_t i) {
    const __m512i chosen = _mm512_setr_epi64(i, i + 2, i + 4, i + 6, i, i, i, i);
    const __m512i column = _mm512_permutexvar_epi64(chosen, _mm512_loadu_si512(p));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(column));
  }
  static F LoadBf16(const uint16_t* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  // Round to nearest even; NaN payloads may become infinities' neighbours but stay NaN.
  static void StoreBf16(uint16_t* p, F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, bias), nan, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }

  // A line of e4m3 codes of two pairs along k (ops/packed.h, kF8) as bf16 of their 256th part: 32
  // numbers of the first pair, then those of the second. A code moved up by 7 bits, its sign by one
  // more, is fp16 of that.
  static void WidenE4M3(const std::byte* line, uint16_t* out) {
    const __m512i codes = _mm512_loadu_si512(line), zero = _mm512_setzero_si512();
    _mm512_storeu_si512(out, Bf16OfCodes(_mm512_unpacklo_epi8(zero, codes)));
    _mm512_storeu_si512(out + 32, Bf16OfCodes(_mm512_unpackhi_epi8(zero, codes)));
  }

  // Integers of int8, and to them: to the nearest, ties to even.
  static F LoadI8(const int8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void StoreI8(int8_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
  }

  // exp(x): x = n ln 2 + r, polynomial of degree 6 in r (relative error below 2^-22); zero below
  // -87.3; NaN stays NaN. The same bits as on AVX2.
  static F Exp(F x) {
    const F low = Set1(-87.33654f);
    const F clamped = _mm512_max_ps(low, _mm512_min_ps(Set1(88.72283f), x));
    const F n = _mm512_roundscale_ps(Mul(clamped, Set1(1.44269504f)),
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
    const __mmask16 not_low = _mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(not_low, p, n);
  }

 private:
  // Codes stand in the upper bytes. Of fp32 the upper half is kept: a code has few enough bits.
  static __m512i Bf16OfCodes(__m512i codes) {
    const __m512i half = _mm512_and_si512(_mm512_srai_epi16(codes, 1),
                                          _mm512_set1_epi16(static_cast<int16_t>(0xbfff)));
    const __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
    const __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(_mm512_castps_si512(first), upper,
                                     _mm512_castps_si512(second));
  }
  static __m256 Low(F x) { return _mm512_castps512_ps256(x); }
  static __m256 High(F x) { return _mm512_extractf32x8_ps(x, 1); }
  static __mmask16 Mask(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
};

}  // namespace braid::ops::cpu
