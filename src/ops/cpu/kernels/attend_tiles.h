// One attention task on tiles of 16 rows (kernels/tiles.h): up to 128 query rows of one kv head
// against one partition of at most 256 keys in bf16. Scores stand as [key][row], for then keys are
// left operands as they lie in their page, and the softmax goes along vectors of rows. Queries and
// weights are rounded to bf16; scores, maxima, sums and outputs are fp32. Integers of an int8 cache
// are exact in bf16; their scales multiply scores and weights. A row's maximum, its sum
// over ascending keys and its steps of 32 keys do not depend on the rows beside it: keys that it
// does not see have a weight of zero.
#pragma once

#include <immintrin.h>

#include "ops/cpu/kernels/attend_few.h"
#include "ops/cpu/kernels/table.h"
#include "ops/cpu/kernels/tiles.h"

namespace braid::ops::cpu {

// `Tiles` computes the products: of tile registers or of vectors.
template <class Tiles>
class TiledAttend {
 public:
  static void Run(const AttendTask& t) { TiledAttend(t).Run(); }
  // See TileKernels::pack_queries.
  static void PackQueries(const float* q, int rows, int64_t head_dim, uint16_t* out) {
    for (int row = 0; row < rows; row += kTileRows) {
      for (int64_t d = 0; d < head_dim; d += kTileDepth, out += kTileElements) {
        __m512i r[16];
        for (int i = 0; i < 16; ++i) {
          const float* x = q + (row + i) * head_dim + d;
          r[i] = row + i < rows ? RoundPair(V::Load(x), V::Load(x + 16)) : __m512i{};
        }
        TransposePairs(r);
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * 32, r[i]);
      }
    }
  }

 private:
  using V = VecAvx512;
  static constexpr int kRows = kTileAttendRows;
  static constexpr int kSteps = kPartitionKeys / kTileDepth;

  // 2^x; the relative error is below 2^-21.
  static __m512 Exp2(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = V::Sub(x, n);
    __m512 p = V::Set1(1.33335581e-3f);
    p = V::Fma(p, r, V::Set1(9.61812910e-3f));
    p = V::Fma(p, r, V::Set1(5.55041087e-2f));
    p = V::Fma(p, r, V::Set1(2.40226507e-1f));
    p = V::Fma(p, r, V::Set1(6.93147181e-1f));
    p = V::Fma(p, r, V::Set1(1.0f));
    return _mm512_scalef_ps(p, n);
  }

  static const uint16_t* Row(const std::byte* const* pages, int key, int64_t dim) {
    return reinterpret_cast<const uint16_t*>(pages[key / kPageKeys]) + key % kPageKeys * dim;
  }

  int LastLimit() {
    int last = 0;
    for (int r = 0; r < t.rows; ++r) last = t.limits[r] > last ? t.limits[r] : last;
    return last;
  }

  // The keys of the tile after this one, on their way while it is multiplied.
  void PrefetchKeys(int key, int last) {
    if (key >= last) return;
    const uint16_t* at = Row(keys, key, t.head_dim);
    for (int64_t i = 0; i < kTileRows * t.head_dim; i += 32) _mm_prefetch(at + i, _MM_HINT_T1);
  }

  // Rows [begin, end) of `dim` integers as bf16, in scratch; pages then point there. Fetches
  // `lines` of the next bytes per row.
  struct Expansion {
    const std::byte* const* from;
    int64_t dim;
    int64_t lines;
  };
  void Expand(const Expansion& e, int begin, int end, const std::byte** pages) {
    const int64_t dim = e.dim;
    for (int key = begin; key < end; ++key) {
      const auto* row =
          reinterpret_cast<const int8_t*>(e.from[key / kPageKeys]) + key % kPageKeys * dim;
      uint16_t* out = t.tiles.expanded + key * dim;
      ahead.Fetch(e.lines);
      for (int64_t c = 0; c < dim; c += 32) {
        _mm512_storeu_si512(out + c, RoundPair(V::LoadI8(row + c), V::LoadI8(row + c + 16)));
      }
    }
    for (int page = begin / kPageKeys; page * kPageKeys < end; ++page) {
      pages[page] = reinterpret_cast<std::byte*>(t.tiles.expanded + page * kPageKeys * dim);
    }
  }
  void ExpandKeys(int begin, int end, int64_t lines) {
    if (integers) Expand({t.keys, t.head_dim, lines}, begin, end, keys);
  }
  // Those of a latent cache are its keys.
  void ExpandValues(int last, int64_t lines) {
    if (!integers) return;
    if (latent) {
      for (int page = 0; page * kPageKeys < last; ++page) values[page] = keys[page];
    } else {
      Expand({t.values, t.value_stride, lines}, 0, last, values);
    }
  }

  // Up to sixteen queries: while keys of a page are multiplied, its values and the keys of the page
  // after it are fetched, then the keys of the next partition.
  template <class Lanes>
  void RunFew(int last) {
    const int64_t page_bytes = BytesOf(t.kv) * kPageKeys * t.head_dim;
    for (int key = 0; key < last; key += kTileRows) {
      if (key % kPageKeys == 0) {
        const int page = key / kPageKeys;
        ahead = {};
        if (!latent) ahead.Add(t.values[page], BytesOf(t.kv) * kPageKeys * t.value_stride);
        ahead.Add(key + kPageKeys < last ? t.keys[page + 1] : nullptr, page_bytes);
      }
      ExpandKeys(key, key + kTileRows, 0);
      AttendFew::Scores<Lanes>({.keys = Row(keys, key, t.head_dim),
                                .dim = t.head_dim,
                                .queries = t.tiles.queries,
                                .scores = t.scores + key * kRows,
                                .scores_row = kRows},
                               ahead, latent ? kTileRows : 2 * kTileRows);
    }
    Softmax(0, last);
    ahead = {};
    ahead.Add(t.next_keys, page_bytes);
    ExpandValues(last, 1);
    AttendFew::Values({.pages = values,
                       .page_keys = kPageKeys,
                       .dim = t.value_stride,
                       .value_dim = t.value_dim,
                       .weights = t.tiles.weights,
                       .weights_row = kPartitionKeys,
                       .rows = t.rows,
                       .last = last,
                       .out = t.out},
                      ahead);
  }

  // One column of queries and a page of keys at a time.
  void ScoresOfPages(int last) {
    for (int key = 0; key < last; key += kPageKeys) {
      for (int i = 0; i < kPageKeys; i += kTileRows) PrefetchKeys(key + kPageKeys + i, last);
      tiles.MultiplyPage({.a = Row(keys, key, t.head_dim),
                          .a_row = t.head_dim,
                          .a_step = kTileDepth,
                          .b = t.tiles.queries,
                          .b_column = 0,
                          .c = t.scores + key * kRows,
                          .c_row = kRows,
                          .steps = static_cast<int>(t.head_dim / kTileDepth),
                          .columns = 1,
                          .add = false});
    }
  }

  // Queries of four columns of tiles stay in the first-level cache for all keys.
  void Scores(int columns, int last) {
    if constexpr (!Tiles::kVectors) {
      if (columns == 1) return ScoresOfPages(last);
    }
    for (int column = 0; column < columns; column += 4) {
      for (int key = 0; key < last; key += kTileRows) {
        PrefetchKeys(key + kTileRows, last);
        tiles.Multiply({.a = Row(keys, key, t.head_dim),
                        .a_row = t.head_dim,
                        .a_step = kTileDepth,
                        .b = t.tiles.queries + column * t.head_dim * kTileRows,
                        .b_column = t.head_dim * kTileRows,
                        .c = t.scores + key * kRows + column * kTileRows,
                        .c_row = kRows,
                        .steps = static_cast<int>(t.head_dim / kTileDepth),
                        .columns = columns - column < 4 ? columns - column : 4,
                        .add = false});
      }
    }
  }

  void Softmax(int column, int last) {
    integers ? SoftmaxOf<true>(column, last) : SoftmaxOf<false>(column, last);
  }

  static __m512 ScaleOf(const float* const* scales, int key) {
    return V::Set1(scales[key / kPageKeys][key % kPageKeys]);
  }

  // Sixteen rows: their maxima, sums, and weights as left operands [row][256 keys].
  template <bool kScaled>
  void SoftmaxOf(int column, int last) {
    const float* scores = t.scores + column * kTileRows;
    const __m512i limits = _mm512_loadu_si512(t.limits + column * kTileRows);
    auto visible = [&](int key) {
      if (key == 0 && t.skip_first) return _mm512_cmpeq_epi32_mask(limits, _mm512_set1_epi32(1));
      return _mm512_cmpgt_epi32_mask(limits, _mm512_set1_epi32(key));
    };
    auto score = [&](int key) {
      const __m512 s = V::Load(scores + key * kRows);
      return kScaled ? V::Mul(s, ScaleOf(t.key_scales, key)) : s;
    };
    __m512 m[4];
    for (__m512& x : m) x = V::Set1(-__builtin_inff());
    for (int key = 0; key < last; key += 4) {
      for (int i = 0; i < 4; ++i) {
        m[i] = _mm512_mask_max_ps(m[i], visible(key + i), m[i], score(key + i));
      }
    }
    const __m512 maxima = V::Max(V::Max(m[0], m[1]), V::Max(m[2], m[3]));
    const __m512 log2e = V::Set1(1.44269504f);
    const __m512 shift = V::Mul(maxima, log2e);
    __m512 sum = V::Zero();
    auto weight = [&](int key) {
      const __m512 x = _mm512_fmsub_ps(score(key), log2e, shift);
      const __mmask16 seen = visible(key);
      const __m512 p = _mm512_maskz_mov_ps(seen, Exp2(x));
      sum = V::Add(sum, p);
      return kScaled ? _mm512_maskz_mul_ps(seen, p, ScaleOf(t.value_scales, key)) : p;
    };
    for (int key = 0; key < last; key += kTileDepth) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        const __m512 first = weight(key + 2 * i);
        r[i] = Interleave(first, weight(key + 2 * i + 1));
      }
      TransposePairs(r);
      uint16_t* out = t.tiles.weights + column * kTileRows * kPartitionKeys + key;
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kPartitionKeys, r[i]);
    }
    V::Store(t.maxima + column * kTileRows, maxima);
    V::Store(t.sums + column * kTileRows, sum);
  }

  // Values as right operands, zero from key `last` to the end of its step.
  void PackValues(int last) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const int end = (last + kTileDepth - 1) / kTileDepth * kTileDepth;
    for (int key = 0; key < end; key += 2) {
      const uint16_t* first = key < last ? Row(values, key, t.value_stride) : nullptr;
      const uint16_t* second = key + 1 < last ? Row(values, key + 1, t.value_stride) : nullptr;
      uint16_t* out = t.tiles.values + key / kTileDepth * kTileElements + key % kTileDepth * 16;
      for (int64_t c = 0; c < t.value_dim; c += 32) {
        const __m512i a = first ? _mm512_loadu_si512(first + c) : __m512i{};
        const __m512i b = second ? _mm512_loadu_si512(second + c) : __m512i{};
        uint16_t* at = out + c / 16 * kSteps * kTileElements;
        _mm512_storeu_si512(at, _mm512_permutex2var_epi16(a, low, b));
        _mm512_storeu_si512(at + kSteps * kTileElements, _mm512_permutex2var_epi16(a, high, b));
      }
    }
  }

  // Four columns of tiles of values stay in the first-level cache for all rows.
  void Values(int columns, int last) {
    if (t.rows < kTileRows) tiles.SetRows(t.rows);
    for (int64_t c = 0; c < t.value_dim; c += 4 * kTileRows) {
      const int64_t left = (t.value_dim - c) / kTileRows;
      for (int row = 0; row < columns * kTileRows; row += kTileRows) {
        tiles.Multiply({.a = t.tiles.weights + row * kPartitionKeys,
                        .a_row = kPartitionKeys,
                        .a_step = kTileDepth,
                        .b = t.tiles.values + c / 16 * kSteps * kTileElements,
                        .b_column = kSteps * kTileElements,
                        .c = t.out + row * t.value_dim + c,
                        .c_row = t.value_dim,
                        .steps = (last + kTileDepth - 1) / kTileDepth,
                        .columns = left < 4 ? static_cast<int>(left) : 4,
                        .add = false});
      }
    }
  }

  explicit TiledAttend(const AttendTask& task)
      : t(task),
        integers(task.kv == CacheFormat::kI8),
        latent(task.values[0] == task.keys[0]),
        tiles(kTileRows) {
    for (int page = 0; page < kPartitionKeys / kPageKeys; ++page) {
      keys[page] = t.keys[page];
      values[page] = t.values[page];
    }
  }

  void Run() {
    const int columns = (t.rows + kTileRows - 1) / kTileRows;
    const int last = LastLimit();
    if constexpr (Tiles::kVectors) {
      if (t.rows <= 8) return RunFew<AttendFew::Eight>(last);
      if (columns == 1) return RunFew<AttendFew::Sixteen>(last);
    }
    ExpandKeys(0, last, 0);
    Scores(columns, last);
    for (int column = 0; column < columns; ++column) Softmax(column, last);
    ExpandValues(last, 0);
    PackValues(last);
    Values(columns, last);
  }

  const AttendTask& t;
  const bool integers, latent;
  const std::byte* keys[kPartitionKeys / kPageKeys];  // pages in bf16
  const std::byte* values[kPartitionKeys / kPageKeys];
  Tiles tiles;
  FetchAhead ahead;
};

}  // namespace braid::ops::cpu
