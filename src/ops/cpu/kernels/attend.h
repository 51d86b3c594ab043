// One attention tile: query rows of one kv head against one partition of at most 256 keys. A score
// adds over channels in lanes and then across them; weighted values add over keys in ascending
// order. Neither depends on which other rows share the tile. A few rows of fp32 wait for memory, so
// its lines are fetched one by one between products: a core has two dozen requests at once, and
// a burst leaves them idle after it. Rows of smaller numbers wait for arithmetic.
#pragma once

#include "ops/cpu/kernels/table.h"

namespace braid::ops::cpu {

template <class V>
struct Attend {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;

  template <CacheFormat kKv>
  static F LoadKv(const std::byte* base, int64_t i) {
    if constexpr (kKv == CacheFormat::kI8)
      return V::LoadI8(reinterpret_cast<const int8_t*>(base) + i);
    if constexpr (kKv == CacheFormat::kBF16) {
      return V::LoadBf16(reinterpret_cast<const uint16_t*>(base) + i);
    }
    return V::Load(reinterpret_cast<const float*>(base) + i);
  }

  // Scores or weights of a row times the scales of their keys, up to whole vectors.
  static void Scale(float* row, const float* const* scales, int64_t keys) {
    for (int64_t key = 0; key < keys; key += kLanes) {
      const F scale = V::Load(scales[key / kPageKeys] + key % kPageKeys);
      V::Store(row + key, V::Mul(V::Load(row + key), scale));
    }
  }

  // The row of a key in its page.
  template <CacheFormat kKv>
  static const std::byte* RowOf(const std::byte* page, int64_t key, int64_t dim) {
    return page + key % kPageKeys * dim * BytesOf(kKv);
  }
  // Fetches numbers of fp32 that stand at `at`, as many as some vectors have, between products.
  template <int kVectors, CacheFormat kKv>
  static void FetchBetween(const std::byte* at) {
    if constexpr (kKv != CacheFormat::kF32) return;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors * kLanes; i += 16) __builtin_prefetch(at + 4 * i, 0, 3);
  }

  // Keys that pass together: 32 registers hold the sums of four rows with four keys.
  static constexpr int kKeysAtOnce = kLanes == 16 ? 4 : 2;

  // Scores of R query rows with the consecutive keys from `key` on. Fetches as many at `ahead`.
  template <int R, CacheFormat kKv>
  static void ScoreKeys(const AttendTask& t, int row, int64_t key, const std::byte* page,
                        const std::byte* ahead) {
    constexpr int K = kKeysAtOnce;
    F acc[R * K];
#pragma GCC unroll 16
    for (int i = 0; i < R * K; ++i) acc[i] = V::Zero();
    const int64_t at = key % kPageKeys * t.head_dim;
    for (int64_t d = 0; d < t.head_dim; d += kLanes) {
      FetchBetween<K, kKv>(ahead + K * d * BytesOf(kKv));
      F keys[K];
      for (int k = 0; k < K; ++k) keys[k] = LoadKv<kKv>(page, at + k * t.head_dim + d);
      for (int r = 0; r < R; ++r) {
        const F q = V::InRegister(V::Load(t.q + (row + r) * t.head_dim + d));
        for (int k = 0; k < K; ++k) acc[r * K + k] = V::Fma(q, keys[k], acc[r * K + k]);
      }
    }
    float sums[R * K];
    if constexpr (R * K % 8 == 0) {
      for (int i = 0; i < R * K; i += 8) {
        F eight[8];  // acc stays in registers while its address is not taken
        for (int j = 0; j < 8; ++j) eight[j] = acc[i + j];
        V::SumOfEach(eight, sums + i);
      }
    } else {
      for (int i = 0; i < R * K; ++i) sums[i] = V::Sum(acc[i]);
    }
    for (int r = 0; r < R; ++r) {
      for (int k = 0; k < K; ++k) t.scores[(row + r) * kPartitionKeys + key + k] = sums[r * K + k];
    }
  }

  // Values of keys [begin, end) of one page, their channels from d on, and the row that is fetched
  // while that of key `begin` is read; further ones follow it.
  struct Slab {
    int64_t d, begin, end;
    const std::byte* ahead;
  };

  // acc[r] += score * value over the keys of a slab, R rows, C vectors of channels.
  template <int R, int C, CacheFormat kKv>
  static void AddValues(const AttendTask& t, int row, const Slab& slab) {
    const int64_t d = slab.d;
    F acc[R][C];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        float* out = t.out + (row + r) * t.value_dim + d + c * kLanes;
        acc[r][c] = slab.begin == 0 ? V::Zero() : V::Load(out);
      }
    }
    const std::byte* page = t.values[slab.begin / kPageKeys];
    const std::byte* ahead = slab.ahead + d * BytesOf(kKv);
    int64_t at = slab.begin % kPageKeys * t.value_stride + d;
    for (int64_t key = slab.begin; key < slab.end; ++key, at += t.value_stride) {
      FetchBetween<C, kKv>(ahead);
      ahead += t.value_stride * BytesOf(kKv);
      F v[C];
      for (int c = 0; c < C; ++c) v[c] = LoadKv<kKv>(page, at + c * kLanes);
      for (int r = 0; r < R; ++r) {
        const F p = V::Set1(t.scores[(row + r) * kPartitionKeys + key]);
        for (int c = 0; c < C; ++c) acc[r][c] = V::Fma(p, v[c], acc[r][c]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        V::Store(t.out + (row + r) * t.value_dim + d + c * kLanes, acc[r][c]);
      }
    }
  }

  // A slab for rows that see different numbers of keys: together as far as all see, then one by
  // one.
  template <int R, int C, CacheFormat kKv>
  static void ValuesOfRows(const AttendTask& t, int row, const Slab& slab) {
    int64_t ends[R], common = slab.end;
    for (int r = 0; r < R; ++r) {
      ends[r] = t.limits[row + r] < slab.end ? t.limits[row + r] : slab.end;
      if (ends[r] < common) common = ends[r];
    }
    if (common > slab.begin) {
      AddValues<R, C, kKv>(t, row, {slab.d, slab.begin, common, slab.ahead});
    }
    for (int r = 0; r < R; ++r) {
      const int64_t first = common > slab.begin ? common : slab.begin;
      if (ends[r] > first) {
        AddValues<1, C, kKv>(t, row + r, {slab.d, first, ends[r], slab.ahead});
      }
    }
  }

  // Vectors of channels outside, so that a slab's lines are there for all rows; the first fetch.
  template <int C, CacheFormat kKv>
  static void ValuesOfSlab(const AttendTask& t, const Slab& slab) {
    int row = 0;
    Slab next = slab;
    const std::byte* own =
        RowOf<kKv>(t.values[slab.begin / kPageKeys], slab.begin, t.value_stride);
    if constexpr (kLanes == 16) {
      for (; row + 8 <= t.rows; row += 8, next.ahead = own) {
        ValuesOfRows<8, C, kKv>(t, row, next);
      }
    }
    for (; row + 4 <= t.rows; row += 4, next.ahead = own) ValuesOfRows<4, C, kKv>(t, row, next);
    for (; row < t.rows; ++row, next.ahead = own) ValuesOfRows<1, C, kKv>(t, row, next);
  }

  static int64_t LastLimit(const AttendTask& t, int row, int end) {
    int64_t last = 0;
    for (; row < end; ++row) last = t.limits[row] > last ? t.limits[row] : last;
    return last;
  }

  // As many keys at a time as the first-level cache holds beside those that are fetched, which are
  // the following ones or, at the end, the first keys of the next partition.
  template <CacheFormat kKv>
  static void Values(const AttendTask& t) {
    constexpr int64_t kSlabKeys = kKv == CacheFormat::kF32 ? 16 : kPageKeys;
    static_assert(kPageKeys % kSlabKeys == 0);
    const int64_t last = LastLimit(t, 0, t.rows);
    for (int64_t begin = 0; begin < last; begin += kSlabKeys) {
      const int64_t next = begin + kSlabKeys;
      const std::byte* ahead =
          next < last    ? RowOf<kKv>(t.values[next / kPageKeys], next, t.value_stride)
          : t.next_keys ? t.next_keys
                         : RowOf<kKv>(t.values[begin / kPageKeys], begin, t.value_stride);
      int64_t d = 0;
      for (; d + 2 * kLanes <= t.value_dim; d += 2 * kLanes) {
        ValuesOfSlab<2, kKv>(t, {d, begin, next, ahead});
      }
      for (; d < t.value_dim; d += kLanes) ValuesOfSlab<1, kKv>(t, {d, begin, next, ahead});
    }
  }

  // Fetches the rows of one pass, from `key` on, into the second-level cache at once.
  static void FetchRows(const AttendTask& t, const std::byte* page, int64_t key, int64_t dim) {
    if (!page) return;
    const int64_t row_bytes = BytesOf(t.kv) * dim;
    const char* at = reinterpret_cast<const char*>(page) + key % kPageKeys * row_bytes;
    const char* end = at + kKeysAtOnce * row_bytes;
    for (; at < end; at += 64) __builtin_prefetch(at, 0, 2);
  }

  // Rows [row, end), to which keys pass through the first-level cache once. The first of a task's
  // rows fetch keys further on: of fp32 at last the first values, else values beside keys. The last
  // keys may be joined by others of their page, whose scores are not read.
  template <CacheFormat kKv>
  static void Scores(const AttendTask& t, int row, int end) {
    constexpr int64_t kAhead = 16;
    const int64_t last = LastLimit(t, row, end);
    for (int64_t key = 0; key < last; key += kKeysAtOnce) {
      const std::byte* page = t.keys[key / kPageKeys];
      const std::byte* own = RowOf<kKv>(page, key, t.head_dim);
      const int64_t next = key + kAhead;
      const std::byte* ahead =
          row > 0        ? own
          : next < last ? RowOf<kKv>(t.keys[next / kPageKeys], next, t.head_dim)
                         : RowOf<kKv>(t.values[0], next - last, t.value_stride);
      if (kKv != CacheFormat::kF32 && row == 0) {
        FetchRows(t, t.values[key / kPageKeys], key, t.value_stride);
        FetchRows(t, next < kPartitionKeys ? t.keys[next / kPageKeys] : t.next_keys, next,
                  t.head_dim);
      }
      int r = row;
      for (; r + 4 <= end; r += 4, ahead = own) ScoreKeys<4, kKv>(t, r, key, page, ahead);
      for (; r < end; ++r, ahead = own) ScoreKeys<1, kKv>(t, r, key, page, ahead);
    }
  }

  template <CacheFormat kKv>
  static void Softmax(const AttendTask& t, int row) {
    float* s = t.scores + row * kPartitionKeys;
    const int64_t limit = t.limits[row];
    if constexpr (kKv == CacheFormat::kI8) Scale(s, t.key_scales, limit);
    if (t.skip_first && limit > 1) s[0] = -__builtin_inff();
    const int64_t padded = (limit + kLanes - 1) / kLanes * kLanes;
    for (int64_t i = limit; i < padded; ++i) s[i] = -__builtin_inff();
    F m = V::Load(s);
    for (int64_t i = kLanes; i < padded; i += kLanes) m = V::Max(m, V::Load(s + i));
    const float maximum = V::MaxLane(m);
    const F shift = V::Set1(maximum);
    F sum = V::Zero();
    for (int64_t i = 0; i < padded; i += kLanes) {
      const F p = V::Exp(V::Sub(V::Load(s + i), shift));
      V::Store(s + i, p);
      sum = V::Add(sum, p);
    }
    t.maxima[row] = maximum;
    t.sums[row] = V::Sum(sum);
    if constexpr (kKv == CacheFormat::kI8) Scale(s, t.value_scales, limit);
  }

  template <CacheFormat kKv>
  static void RunAs(const AttendTask& t) {
    constexpr int kRowsAtOnce = 8;
    for (int row = 0; row < t.rows; row += kRowsAtOnce) {
      Scores<kKv>(t, row, row + kRowsAtOnce < t.rows ? row + kRowsAtOnce : t.rows);
    }
    for (int row = 0; row < t.rows; ++row) Softmax<kKv>(t, row);
    Values<kKv>(t);
  }

  static void Run(const AttendTask& t) {
    switch (t.kv) {
      case CacheFormat::kI8:
        return RunAs<CacheFormat::kI8>(t);
      case CacheFormat::kBF16:
        return RunAs<CacheFormat::kBF16>(t);
      case CacheFormat::kF32:
        return RunAs<CacheFormat::kF32>(t);
    }
  }

  static void Merge(float* m, float* l, float* o, float m2, float l2, const float* o2,
                    int64_t count) {
    const float maximum = *m > m2 ? *m : m2;
    float shifts[kLanes] = {*m - maximum, m2 - maximum};
    V::Store(shifts, V::Exp(V::Load(shifts)));
    const F a = V::Set1(shifts[0]), b = V::Set1(shifts[1]);
    *l = *l * shifts[0] + l2 * shifts[1];
    *m = maximum;
    for (int64_t i = 0; i < count; i += kLanes) {
      V::Store(o + i, V::Fma(V::Load(o2 + i), b, V::Mul(V::Load(o + i), a)));
    }
  }
};

}  // namespace braid::ops::cpu
