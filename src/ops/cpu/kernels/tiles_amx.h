// kernels/tiles.h on AMX. For the files of ops/cpu/amx only.
#pragma once

#include <immintrin.h>

#include "ops/cpu/kernels/tiles.h"

namespace braid::ops::cpu {

struct alignas(64) TileShape {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The compiler takes tile instructions for ones that do not touch memory.
inline void TileFence() { asm volatile("" ::: "memory"); }

class AmxTiles {
 public:
  static constexpr bool kVectors = false;

  // Products have `rows` rows.
  explicit AmxTiles(int rows) { SetRows(rows); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
  ~AmxTiles() { _tile_release(); }

  // Tiles 0 to 3 are outputs and 4 the left operand, of `rows` rows; 5 to 7 are right operands.
  void SetRows(int rows) {
    TileShape shape;
    for (int i = 0; i < 8; ++i) {
      shape.row_bytes[i] = 64;
      shape.rows[i] = static_cast<uint8_t>(i < 5 ? rows : kTileRows);
    }
    TileFence();
    _tile_loadconfig(&shape);
  }

  void Multiply(const TileProduct& p) {
    TileFence();
    int column = 0;
    for (; column + 4 <= p.columns; column += 4) Columns<4>(p, column);
    switch (p.columns - column) {
      case 3:
        Columns<3>(p, column);
        break;
      case 2:
        Columns<2>(p, column);
        break;
      case 1:
        Columns<1>(p, column);
        break;
    }
    TileFence();
  }

  // Four times as many rows, one column: as many independent sums as one left operand with four.
  // Only with products of 16 rows.
  void MultiplyPage(const TileProduct& p) {
    const int64_t a_bytes = p.a_row * 2, tile = kTileRows * p.a_row, c_bytes = p.c_row * 4;
    TileFence();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int s = 0; s < p.steps; ++s) {
      const uint16_t* a = p.a + s * p.a_step;
      _tile_loadd(7, p.b + s * kTileElements, 64);
      _tile_loadd(4, a, a_bytes);
      _tile_dpbf16ps(0, 4, 7);
      _tile_loadd(5, a + tile, a_bytes);
      _tile_dpbf16ps(1, 5, 7);
      _tile_loadd(6, a + 2 * tile, a_bytes);
      _tile_dpbf16ps(2, 6, 7);
      _tile_loadd(4, a + 3 * tile, a_bytes);
      _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, p.c, c_bytes);
    _tile_stored(1, p.c + 16 * p.c_row, c_bytes);
    _tile_stored(2, p.c + 32 * p.c_row, c_bytes);
    _tile_stored(3, p.c + 48 * p.c_row, c_bytes);
    TileFence();
  }

 private:
  template <int N>
  static void Columns(const TileProduct& p, int column) {
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
};

}  // namespace braid::ops::cpu
