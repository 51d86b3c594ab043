// kernels/tiles.h on AVX512-BF16. An output's terms are added pair by pair, ascending, the second
// of the pair first (VDPBF16PS).
#pragma once

#include <immintrin.h>

#include "ops/cpu/kernels/tiles.h"

namespace braid::ops::cpu {

class DotTiles {
 public:
  // Up to 16 queries have a form of their own (kernels/attend_few.h).
  static constexpr bool kVectors = true;

  // Products have `rows` rows.
  explicit DotTiles(int rows) : rows_(rows) {}
  void SetRows(int rows) { rows_ = rows; }

  void Multiply(const TileProduct& p) const {
    p.add ? MultiplyRows<true>(p, rows_) : MultiplyRows<false>(p, rows_);
  }

 private:
  static __m512bh Pairs(const uint16_t* p) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
  }
  static __m512bh Pair(const uint16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }

  template <int kValue>
  struct Constant {
    constexpr operator int() const { return kValue; }
  };
  // f(0), …, f(kCount - 1) with constants: an array that only they index stays in registers, where
  // a loop's would pass through the stack before and after the product (GCC 12).
  template <int kCount, int kBegin = 0, class F>
  [[gnu::always_inline]] static void Each(const F& f) {
    if constexpr (kBegin < kCount) {
      f(Constant<kBegin>());
      Each<kCount, kBegin + 1>(f);
    }
  }

  // kAdd is p.add.
  template <int R, int N, bool kAdd>
  static void Block(const TileProduct& p, int row, int column) {
    const uint16_t* a = p.a + row * p.a_row;
    const uint16_t* b = p.b + column * p.b_column;
    float* c = p.c + row * p.c_row + column * kTileRows;
    __m512 sums[R * N];
    Each<R * N>([&](auto i) __attribute__((always_inline)) {
      sums[i] = kAdd ? _mm512_loadu_ps(c + i / N * p.c_row + i % N * 16) : _mm512_setzero_ps();
    });
    for (int s = 0; s < p.steps; ++s, a += p.a_step, b += kTileElements) {
      for (int pair = 0; pair < kTileDepth / 2; ++pair) {
        __m512bh right[N];
        Each<N>([&](auto n) __attribute__((always_inline)) {
          right[n] = Pairs(b + n * p.b_column + pair * 32);
        });
        Each<R>([&](auto r) __attribute__((always_inline)) {
          const __m512bh left = Pair(a + r * p.a_row + 2 * pair);
          Each<N>([&](auto n) __attribute__((always_inline)) {
            sums[r * N + n] = _mm512_dpbf16_ps(sums[r * N + n], left, right[n]);
          });
        });
      }
    }
    Each<R * N>([&](auto i) __attribute__((always_inline)) {
      _mm512_storeu_ps(c + i / N * p.c_row + i % N * 16, sums[i]);
    });
  }

  template <int R, bool kAdd>
  static void Columns(const TileProduct& p, int row) {
    int column = 0;
    if constexpr (R <= 4) {
      for (; column + 4 <= p.columns; column += 4) Block<R, 4, kAdd>(p, row, column);
    }
    if constexpr (R <= 8) {
      for (; column + 2 <= p.columns; column += 2) Block<R, 2, kAdd>(p, row, column);
    }
    for (; column < p.columns; ++column) Block<R, 1, kAdd>(p, row, column);
  }

  // Eight to sixteen sums at once, and no more rows than there are registers for their addresses.
  template <bool kAdd>
  static void MultiplyRows(const TileProduct& p, int rows) {
    int row = 0;
    if (p.columns < 4) {
      for (; row + 8 <= rows; row += 8) Columns<8, kAdd>(p, row);
    }
    for (; row + 4 <= rows; row += 4) Columns<4, kAdd>(p, row);
    for (; row + 2 <= rows; row += 2) Columns<2, kAdd>(p, row);
    if (row < rows) Columns<1, kAdd>(p, row);
  }

  int rows_;
};

}  // namespace braid::ops::cpu
