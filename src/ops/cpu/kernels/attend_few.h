// Products of attention for up to sixteen queries, as decode has them, with the bits of
// kernels/tiles_dot.h. Nothing is packed: keys and values are operands as they come from memory,
// and fetched before they are needed. A tile with eight queries would be half empty; for them a
// vector of scores is half as wide.
#pragma once

#include <immintrin.h>

#include "ops/cpu/kernels/fetch_ahead.h"
#include "ops/cpu/kernels/tiles.h"

namespace braid::ops::cpu {

class AttendFew {
 public:
  struct Eight {
    using Sums = __m256;
    static Sums Zero() { return _mm256_setzero_ps(); }
    static void Store(float* p, Sums x) { _mm256_storeu_ps(p, x); }
    static __m256bh Pairs(const uint16_t* p) {
      return reinterpret_cast<__m256bh>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static Sums Dot(Sums sums, __m256bh queries, const uint16_t* key) {
      const __m256i pair = _mm256_broadcastd_epi32(_mm_loadu_si32(key));
      return _mm256_dpbf16_ps(sums, queries, reinterpret_cast<__m256bh>(pair));
    }
  };
  struct Sixteen {
    using Sums = __m512;
    static Sums Zero() { return _mm512_setzero_ps(); }
    static void Store(float* p, Sums x) { _mm512_storeu_ps(p, x); }
    static __m512bh Pairs(const uint16_t* p) {
      return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
    }
    static Sums Dot(Sums sums, __m512bh queries, const uint16_t* key) {
      return _mm512_dpbf16_ps(sums, queries, Pair(key));
    }
  };

  struct Scored {
    const uint16_t* keys;  // [16][dim]
    int64_t dim;
    const uint16_t* queries;  // packed: 8 of them are the first half of a tile's outputs
    float* scores;            // [key][scores_row]
    int64_t scores_row;
  };
  // Fetches `lines` of `ahead` per 32 terms. `Lanes`: Eight or Sixteen queries.
  template <class Lanes>
  static void Scores(const Scored& p, FetchAhead& ahead, int64_t lines) {
    const int64_t dim = p.dim;
    const uint16_t* queries = p.queries;
    typename Lanes::Sums sums[kTileRows];
    for (auto& sum : sums) sum = Lanes::Zero();
    for (int64_t d = 0; d < dim; d += kTileDepth, queries += kTileElements) {
      ahead.Fetch(lines);
      for (int pair = 0; pair < kTileDepth; pair += 2) {
        const auto right = Lanes::Pairs(queries + pair * 16);
        const uint16_t* key = p.keys + d + pair;
        for (auto& sum : sums) {
          sum = Lanes::Dot(sum, right, key);
          key += dim;
        }
      }
    }
    float* scores = p.scores;
    for (int i = 0; i < kTileRows; ++i, scores += p.scores_row) Lanes::Store(scores, sums[i]);
  }

  struct Weighted {
    const std::byte* const* pages;  // of values [page_keys][dim]
    int page_keys;
    int64_t dim;
    int64_t value_dim;        // channels of a value; a multiple of 32
    const uint16_t* weights;  // [row][weights_row], zero from key `last` to the end of its step
    int64_t weights_row;
    int rows, last;
    float* out;  // [row][value_dim]
  };
  // out = weights times values; what stands from key `last` on counts as zero.
  static void Values(const Weighted& p, FetchAhead& ahead) {
    int row = 0;
    for (; row + 8 <= p.rows; row += 8) ValueRows<8>(p, row, ahead);
    for (; row + 4 <= p.rows; row += 4) ValueRows<4>(p, row, ahead);
    for (; row < p.rows; ++row) ValueRows<1>(p, row, ahead);
  }

 private:
  static __m512bh Pair(const uint16_t* p) {
    return reinterpret_cast<__m512bh>(_mm512_broadcastd_epi32(_mm_loadu_si32(p)));
  }

  template <int R>
  static void ValueRows(const Weighted& p, int row, FetchAhead& ahead) {
    for (int64_t c = 0; c < p.value_dim; c += 32) {
      __m512 sums[R][2];
      for (auto& sum : sums) sum[0] = sum[1] = _mm512_setzero_ps();
      for (int key = 0; key < p.last; key += p.page_keys) {
        const auto* page = reinterpret_cast<const uint16_t*>(p.pages[key / p.page_keys]) + c;
        const int left = p.last - key, count = left < p.page_keys ? left : p.page_keys;
        Page<R>(p, {page, row, key, count}, sums, ahead);
      }
      float* out = p.out + row * p.value_dim + c;
      for (int r = 0; r < R; ++r, out += p.value_dim) {
        _mm512_storeu_ps(out, sums[r][0]);
        _mm512_storeu_ps(out + 16, sums[r][1]);
      }
    }
  }

  // 32 channels of the values of one page; `count` of them exist.
  struct Slab {
    const uint16_t* values;
    int row, key, count;
  };
  template <int R>
  static void Page(const Weighted& p, const Slab& slab, __m512 (&sums)[R][2], FetchAhead& ahead) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const uint16_t* w = p.weights + slab.row * p.weights_row + slab.key;
    const uint16_t* v = slab.values;
    const int end = (slab.count + kTileDepth - 1) / kTileDepth * kTileDepth;
    for (int key = 0; key < end; key += 2, v += 2 * p.dim, w += 2) {
      ahead.Fetch(1);
      const __m512i a = key < slab.count ? _mm512_loadu_si512(v) : __m512i{};
      const __m512i b = key + 1 < slab.count ? _mm512_loadu_si512(v + p.dim) : __m512i{};
      const auto first = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(a, low, b));
      const auto second = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(a, high, b));
      for (int r = 0; r < R; ++r) {
        const __m512bh weight = Pair(w + r * p.weights_row);
        sums[r][0] = _mm512_dpbf16_ps(sums[r][0], weight, first);
        sums[r][1] = _mm512_dpbf16_ps(sums[r][1], weight, second);
      }
    }
  }
};

}  // namespace braid::ops::cpu
