// One attention tile: query rows of one kv head against one partition of at most 256 keys. A score
// adds over channels in lanes and then across them; weighted values add over keys in ascending
// order. Neither depends on which other rows share the tile.
#pragma once

#include "ops/cpu/kernels/table.h"

namespace braid::cpu {

template <class V>
struct Attend {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;

  template <KvFormat kKv>
  static F LoadKv(const std::byte* base, int64_t i) {
    if constexpr (kKv == KvFormat::kI8) return V::LoadI8(reinterpret_cast<const int8_t*>(base) + i);
    if constexpr (kKv == KvFormat::kBF16) {
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

  // Scores of R query rows with two consecutive keys.
  template <int R, KvFormat kKv>
  static void ScorePair(const AttendTask& t, int row, int64_t key, const std::byte* page) {
    F acc[R][2];
    for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = V::Zero();
    const int64_t at = key % kPageKeys * t.head_dim;
    for (int64_t d = 0; d < t.head_dim; d += kLanes) {
      const F k0 = LoadKv<kKv>(page, at + d);
      const F k1 = LoadKv<kKv>(page, at + t.head_dim + d);
      for (int r = 0; r < R; ++r) {
        const F q = V::Load(t.q + (row + r) * t.head_dim + d);
        acc[r][0] = V::Fma(q, k0, acc[r][0]);
        acc[r][1] = V::Fma(q, k1, acc[r][1]);
      }
    }
    for (int r = 0; r < R; ++r) {
      float* scores = t.scores + (row + r) * kPartitionKeys + key;
      scores[0] = V::Sum(acc[r][0]);
      scores[1] = V::Sum(acc[r][1]);
    }
  }

  // acc[r] += score * value over keys [key_begin, key_end), R rows, C vectors of channels from d.
  template <int R, int C, KvFormat kKv>
  static void AddValues(const AttendTask& t, int row, int64_t d, int64_t key_begin,
                        int64_t key_end) {
    F acc[R][C];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        float* out = t.out + (row + r) * t.value_dim + d + c * kLanes;
        acc[r][c] = key_begin == 0 ? V::Zero() : V::Load(out);
      }
    }
    for (int64_t key = key_begin; key < key_end; ++key) {
      const std::byte* page = t.values[key / kPageKeys];
      const int64_t at = key % kPageKeys * t.value_stride + d;
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

  // Rows that see different numbers of keys: together as far as all see, then one by one.
  template <int R, int C, KvFormat kKv>
  static void ValuesOfRows(const AttendTask& t, int row, int64_t d) {
    int64_t common = t.limits[row];
    for (int r = 1; r < R; ++r) {
      if (t.limits[row + r] < common) common = t.limits[row + r];
    }
    AddValues<R, C, kKv>(t, row, d, 0, common);
    for (int r = 0; r < R; ++r) {
      if (t.limits[row + r] > common) {
        AddValues<1, C, kKv>(t, row + r, d, common, t.limits[row + r]);
      }
    }
  }

  template <int R, KvFormat kKv>
  static void Values(const AttendTask& t, int row) {
    int64_t d = 0;
    for (; d + 2 * kLanes <= t.value_dim; d += 2 * kLanes) ValuesOfRows<R, 2, kKv>(t, row, d);
    for (; d < t.value_dim; d += kLanes) ValuesOfRows<R, 1, kKv>(t, row, d);
  }

  template <int R, KvFormat kKv>
  static void Scores(const AttendTask& t, int row) {
    int64_t limit = t.limits[row];
    for (int r = 1; r < R; ++r) {
      if (t.limits[row + r] > limit) limit = t.limits[row + r];
    }
    // An odd last key is paired with its page's next one, whose score is not read.
    for (int64_t key = 0; key < limit; key += 2) {
      ScorePair<R, kKv>(t, row, key, t.keys[key / kPageKeys]);
    }
  }

  template <KvFormat kKv>
  static void Softmax(const AttendTask& t, int row) {
    float* s = t.scores + row * kPartitionKeys;
    const int64_t limit = t.limits[row];
    if constexpr (kKv == KvFormat::kI8) Scale(s, t.key_scales, limit);
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
    if constexpr (kKv == KvFormat::kI8) Scale(s, t.value_scales, limit);
  }

  template <KvFormat kKv>
  static void RunAs(const AttendTask& t) {
    int row = 0;
    for (; row + 4 <= t.rows; row += 4) Scores<4, kKv>(t, row);
    for (; row < t.rows; ++row) Scores<1, kKv>(t, row);
    for (row = 0; row < t.rows; ++row) Softmax<kKv>(t, row);
    for (row = 0; row + 4 <= t.rows; row += 4) Values<4, kKv>(t, row);
    for (; row < t.rows; ++row) Values<1, kKv>(t, row);
  }

  static void Run(const AttendTask& t) {
    switch (t.kv) {
      case KvFormat::kI8:
        return RunAs<KvFormat::kI8>(t);
      case KvFormat::kBF16:
        return RunAs<KvFormat::kBF16>(t);
      case KvFormat::kF32:
        return RunAs<KvFormat::kF32>(t);
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

}  // namespace braid::cpu
