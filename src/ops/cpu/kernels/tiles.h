// Tile registers for the bf16 kernels of attention and the recurrence: one shape of product, and
// the packings of its operands. For the files of ops/cpu/amx only. A row of a product does not
// touch the other rows, so an output's bits do not depend on how many rows there are.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::cpu {

inline constexpr int kTileRows = 16;
inline constexpr int kTileDepth = 32;      // bf16 terms of one step
inline constexpr int kTileElements = 512;  // bf16 elements of one tile of right operands

struct alignas(64) TileShape {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The compiler takes tile instructions for ones that do not touch memory.
inline void TileFence() { asm volatile("" ::: "memory"); }

// Tiles 0 to 3 are outputs and 4 the left operand, of `rows` rows; 5 to 7 are right operands.
inline void ConfigureTiles(int rows) {
  TileShape shape;
  for (int i = 0; i < 8; ++i) {
    shape.row_bytes[i] = 64;
    shape.rows[i] = static_cast<uint8_t>(i < 5 ? rows : kTileRows);
  }
  TileFence();
  _tile_loadconfig(&shape);
}

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

template <int N>
inline void TileColumns(const TileProduct& p, int column) {
  static_assert(N >= 1 && N <= 4);
  float* c = p.c + int64_t{column} * kTileRows;
  const int64_t c_bytes = p.c_row * 4;
  if (p.add) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (N > 1) _tile_loadd(1, c + 16, c_bytes);
    if constexpr (N > 2) _tile_loadd(2, c + 32, c_bytes);
    if constexpr (N > 3) _tile_loadd(3, c + 48, c_bytes);
  } else {
    _tile_zero(0);
    if constexpr (N > 1) _tile_zero(1);
    if constexpr (N > 2) _tile_zero(2);
    if constexpr (N > 3) _tile_zero(3);
  }
  const uint16_t* b = p.b + column * p.b_column;
  for (int s = 0; s < p.steps; ++s) {
    const uint16_t* at = b + s * kTileElements;
    _tile_loadd(4, p.a + s * p.a_step, p.a_row * 2);
    _tile_loadd(5, at, 64);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (N > 1) {
      _tile_loadd(6, at + p.b_column, 64);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (N > 2) {
      _tile_loadd(7, at + 2 * p.b_column, 64);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (N > 3) {
      _tile_loadd(5, at + 3 * p.b_column, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (N > 1) _tile_stored(1, c + 16, c_bytes);
  if constexpr (N > 2) _tile_stored(2, c + 32, c_bytes);
  if constexpr (N > 3) _tile_stored(3, c + 48, c_bytes);
}

inline void Multiply(const TileProduct& p) {
  TileFence();
  int column = 0;
  for (; column + 4 <= p.columns; column += 4) TileColumns<4>(p, column);
  switch (p.columns - column) {
    case 3:
      TileColumns<3>(p, column);
      break;
    case 2:
      TileColumns<2>(p, column);
      break;
    case 1:
      TileColumns<1>(p, column);
      break;
  }
  TileFence();
}

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

}  // namespace braid::cpu
