// Products of tiles of 16 rows in bf16 for attention and the recurrence: one shape of product,
// which kernels/tiles_amx.h computes on tile registers and kernels/tiles_dot.h on vectors, and the
// packings of its operands. A row of a product does not touch the other rows, so an output's bits
// do not depend on how many rows there are.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::ops::cpu {

inline constexpr int kTileRows = 16;
inline constexpr int kTileDepth = 32;      // bf16 terms of one step
inline constexpr int kTileElements = 512;  // bf16 elements of one tile of right operands

// c = a b, or c += a b. a: rows of bf16 pairs of `steps` times 32 terms, a step's part of row r at
// a + r * a_row + step * a_step. b: tiles of 16 outputs by 32 terms as the instruction wants them
// ([16 pairs of terms][16 outputs][2]), those of one column of tiles behind each other. c: fp32.
// All strides are in elements.
struct TileProduct {
  const uint16_t* a;
  int64_t a_row, a_step;
  const uint16_t* b;
  int64_t b_column;
  float* c;
  int64_t c_row;
  int steps;
  int columns;  // of 16 outputs
  bool add;
};

inline __m512i Bits(__m512bh x) { return reinterpret_cast<__m512i>(x); }

// 32 consecutive values, rounded to nearest even.
inline __m512i RoundPair(__m512 low, __m512 high) { return Bits(_mm512_cvtne2ps_pbh(high, low)); }

// Sixteen pairs (first[i], second[i]).
inline __m512i Interleave(__m512 first, __m512 second) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, RoundPair(first, second));
}

// A 16 by 16 block of pairs of bf16, transposed.
inline void TransposePairs(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// A row of fp32 as bf16; count is a multiple of 32.
inline void RoundRow(const float* x, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; i += 32) {
    _mm512_storeu_si512(out + i, RoundPair(_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + 16)));
  }
}

// Rows of bf16 ([16][stride]) as right operands whose outputs are the rows: one tile per 32 terms.
inline void PackRowsAsOutputs(const uint16_t* rows, int64_t stride, int steps, uint16_t* tiles) {
  for (int s = 0; s < steps; ++s) {
    __m512i r[16];
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows + i * stride + s * kTileDepth);
    TransposePairs(r);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tiles + s * kTileElements + i * 32, r[i]);
  }
}

// The columns of x ([rows][columns] fp32, multiples of 32 and 16) as rows of left operands whose
// terms are the rows of x: tiles [columns / 16][rows / 32][16][32].
inline void PackColumnsAsRows(const float* x, int rows, int64_t columns, uint16_t* tiles) {
  for (int64_t c = 0; c < columns; c += kTileRows) {
    for (int row = 0; row < rows; row += kTileDepth, tiles += kTileElements) {
      const float* at = x + row * columns + c;
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        const float* pair = at + 2 * i * columns;
        r[i] = Interleave(_mm512_loadu_ps(pair), _mm512_loadu_ps(pair + columns));
      }
      TransposePairs(r);
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tiles + i * kTileDepth, r[i]);
    }
  }
}

}  // namespace braid::ops::cpu
