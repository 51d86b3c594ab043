// One new row of the gated delta rule, as in decode, with the bits that TiledDelta<DotTiles> gives
// the row among others (kernels/delta_tiles.h): the same operands rounded to bf16, the same order
// of pairs. State, keys and updates pass once from memory through registers, and nothing is packed
// into scratch; while one of them is multiplied, the next is fetched.
#pragma once

#include <immintrin.h>

#include "ops/cpu/kernels/delta.h"
#include "ops/cpu/kernels/fetch_ahead.h"
#include "ops/cpu/kernels/table.h"
#include "ops/cpu/kernels/tiles.h"
#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::ops::cpu {

class DeltaRow {
 public:
  static void Run(const DeltaTask& t) { DeltaRow(t).Run(); }

 private:
  using V = VecAvx512;
  // Delta's loops, instantiated for the flags of one file alone.
  struct Lanes : VecAvx512 {};
  using Near = Delta<Lanes>;
  static constexpr int kRowsAhead = 4;  // between a row of the state that is read and one fetched

  // Two bf16 that stand one after the other, in all lanes.
  static __m512bh Pair(const uint16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  static __m512 Dot(__m512 sum, __m512bh a, __m512i b) {
    return _mm512_dpbf16_ps(sum, a, reinterpret_cast<__m512bh>(b));
  }
  static __m512bh NoPair() { return reinterpret_cast<__m512bh>(__m512i{}); }

  // The new row of k, and the prefix sums of its log decay.
  void Append() {
    const int64_t width = t.channel_decay ? t.dk : 1;
    float* k = t.rows_k + row * t.dk;
    for (int64_t d = 0; d < t.dk; d += 16) V::Store(k + d, V::Load(t.k + d));
    float* g = t.rows_g + row * width;
    for (int64_t d = 0; d < width; ++d) g[d] = (row > 0 ? g[d - width] : 0.0f) + t.log_decay[d];
  }

  // q and k as left operands of products with S0 and with keys.
  void RoundOperands() {
    const float* k = t.rows_k + row * t.dk;
    if (!t.channel_decay) {
      RoundRow(t.q, state_q, t.dk);
      RoundRow(k, state_k, t.dk);
      return;
    }
    Near::ScaleRow(t, row, own, k, t.q, near.row_k, near.row_q);
    RoundRow(near.row_k, score_k, t.dk);
    RoundRow(near.row_q, score_q, t.dk);
    for (int64_t d = 0; d < t.dk; d += 16) {
      const __m512 before = V::Exp(V::Load(t.rows_g + own * t.dk + d));
      V::Store(near.row_k + d, V::Mul(before, V::Load(near.row_k + d)));
      V::Store(near.row_q + d, V::Mul(before, V::Load(near.row_q + d)));
    }
    RoundRow(near.row_k, state_k, t.dk);
    RoundRow(near.row_q, state_q, t.dk);
  }

  // 32 terms of the key of row j; with a decay per channel times that up to the own block.
  __m512i Key(int j, int64_t d) const {
    const float* k = t.rows_k + j * t.dk + d;
    if (!t.channel_decay) return RoundPair(V::Load(k), V::Load(k + 16));
    const float *g = t.rows_g + j * t.dk + d, *to = t.rows_g + own * t.dk + d;
    const __m512 low = V::Exp(V::Sub(V::Load(to), V::Load(g)));
    const __m512 high = V::Exp(V::Sub(V::Load(to + 16), V::Load(g + 16)));
    return RoundPair(V::Mul(low, V::Load(k)), V::Mul(high, V::Load(k + 16)));
  }

  // Products of q and k with the keys of `count` rows from j on.
  void Scores(int j, int count, __m512* q, __m512* k) {
    *q = *k = V::Zero();
    for (int64_t d = 0; d < t.dk; d += kTileDepth) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) r[i] = i < count ? Key(j + i, d) : __m512i{};
      ahead.Fetch(4 * count);
      TransposePairs(r);
      for (int i = 0; i < 16; ++i) {
        *q = Dot(*q, Pair(score_q + d + 2 * i), r[i]);
        *k = Dot(*k, Pair(score_k + d + 2 * i), r[i]);
      }
    }
  }

  // The decayed weights of the row on the 16 rows from j, those of the own block on u before it in
  // fp32.
  void Weights(int j) {
    const bool last = j == own;
    const auto before = last ? static_cast<__mmask16>((1u << (row - own)) - 1) : __mmask16{0xffff};
    const auto upto = static_cast<__mmask16>(2u * before + 1u);
    __m512 w_q, w_k;
    if (t.channel_decay && last) {
      Near::NearWeights(t, near, row, t.rows_k + row * t.dk, t.q, weights, weights + 16);
      w_k = _mm512_maskz_loadu_ps(before, weights);
      w_q = _mm512_maskz_loadu_ps(upto, weights + 16);
    } else {
      Scores(j, last ? row + 1 - own : 16, &w_q, &w_k);
      if (!t.channel_decay) {
        const __m512 decay = V::Exp(V::Sub(V::Set1(t.rows_g[row]), V::Load(t.rows_g + j)));
        w_k = _mm512_mul_ps(w_k, decay);
        w_q = _mm512_mul_ps(w_q, decay);
      }
      w_k = _mm512_maskz_mov_ps(before, w_k);
      w_q = _mm512_maskz_mov_ps(upto, w_q);
    }
    if (last) V::Store(inside, w_k);
    _mm512_storeu_si512(weights_q + j, RoundPair(w_q, V::Zero()));
    _mm512_storeu_si512(weights_k + j, RoundPair(w_k, V::Zero()));
  }

  // sums[0] += q S0 and sums[1] += k S0 over N vectors of columns, times the row's decay.
  template <int N>
  void FromState(int64_t column, __m512 (&sums)[2][N]) {
    for (int n = 0; n < N; ++n) sums[0][n] = sums[1][n] = V::Zero();
    if (t.s0) {
      const float* s = t.s0 + column;
      const int64_t lines = (2 * N * row + t.dk - 1) / t.dk;  // all of u, while the state passes
      for (int64_t d = 0; d < t.dk; d += 2, s += 2 * t.dv) {
        ahead.Fetch(lines);
        for (int n = 0; n < N; ++n) {
          _mm_prefetch(s + kRowsAhead * t.dv + n * 16, _MM_HINT_T1);
          _mm_prefetch(s + (kRowsAhead + 1) * t.dv + n * 16, _MM_HINT_T1);
        }
        const __m512bh q = Pair(state_q + d), k = Pair(state_k + d);
        for (int n = 0; n < N; ++n) {
          const __m512i pair = Interleave(V::Load(s + n * 16), V::Load(s + t.dv + n * 16));
          sums[0][n] = Dot(sums[0][n], q, pair);
          sums[1][n] = Dot(sums[1][n], k, pair);
        }
      }
    }
    if (t.channel_decay) return;
    const __m512 decay = V::Exp(V::Set1(t.rows_g[row]));
    for (int n = 0; n < N; ++n) {
      sums[0][n] = V::Mul(decay, sums[0][n]);
      sums[1][n] = V::Mul(decay, sums[1][n]);
    }
  }

  // u of rows j and j + 1, zero from row `end` on.
  static __m512i UpdatePair(const float* u, int64_t dv, int j, int end) {
    const __m512 first = j < end ? V::Load(u) : V::Zero();
    return Interleave(first, j + 1 < end ? V::Load(u + dv) : V::Zero());
  }

  // sums[0] += q's weights and sums[1] += k's on u of the rows of the blocks before.
  template <int N>
  void AddUpdates(int64_t column, __m512 (&sums)[2][N]) {
    const float* u = t.rows_u + column;
    for (int j = 0; j < own; j += 2, u += 2 * t.dv) {
      ahead.Fetch(t.channel_decay ? 4 * N : 2 * N);
      const __m512bh q = Pair(weights_q + j), k = Pair(weights_k + j);
      for (int n = 0; n < N; ++n) {
        const __m512i pair = Interleave(V::Load(u + n * 16), V::Load(u + t.dv + n * 16));
        sums[0][n] = Dot(sums[0][n], q, pair);
        sums[1][n] = Dot(sums[1][n], k, pair);
      }
    }
    if (own / kTileRows % 2 == 0) return;
    // A step has 32 rows: k also meets the own block, with weights of zero.
    for (int j = own; j < own + kTileRows; j += 2, u += 2 * t.dv) {
      for (int n = 0; n < N; ++n) {
        sums[1][n] = Dot(sums[1][n], NoPair(), UpdatePair(u + n * 16, t.dv, j, row));
      }
    }
  }

  // u of the row, from the value recalled for it.
  template <int N>
  void Solve(int64_t column, __m512 (&memory)[N]) {
    float* u = t.rows_u + row * t.dv + column;
    if (t.add) {
      for (int n = 0; n < N; ++n) V::Store(u + n * 16, V::Load(t.v + column + n * 16));
      return;
    }
    for (int j = own; j < row; ++j) {
      const __m512 w = V::Set1(inside[j - own]);
      const float* uj = t.rows_u + j * t.dv + column;
      for (int n = 0; n < N; ++n) memory[n] = V::Fma(w, V::Load(uj + n * 16), memory[n]);
    }
    const __m512 beta = V::Set1(t.beta[0]);
    for (int n = 0; n < N; ++n) {
      V::Store(u + n * 16, V::Mul(beta, V::Sub(V::Load(t.v + column + n * 16), memory[n])));
    }
  }

  // sum += q's weights on u from the own block to the end of its step of 32 rows.
  template <int N>
  void AddOwnUpdates(int64_t column, __m512 (&sum)[N]) {
    const float* u = t.rows_u + own * t.dv + column;
    for (int j = own; j <= row; j += 2, u += 2 * t.dv) {
      const __m512bh q = Pair(weights_q + j);
      for (int n = 0; n < N; ++n) {
        sum[n] = Dot(sum[n], q, UpdatePair(u + n * 16, t.dv, j, row + 1));
      }
    }
    // Pairs of zeros, of which one does what many do.
    if (row / 2 * 2 + 2 == (own / 32 + 1) * 32) return;
    for (int n = 0; n < N; ++n) sum[n] = Dot(sum[n], NoPair(), __m512i{});
  }

  // u of the row, and its output from what was before it.
  template <int N>
  [[gnu::noinline]] void Update(int64_t column) {
    __m512 sums[2][N];
    FromState(column, sums);
    AddUpdates(column, sums);
    Solve(column, sums[1]);
    for (int n = 0; n < N; ++n) V::Store(t.out + column + n * 16, sums[0][n]);
  }

  // The rest of the output, once all of u is known and rounded.
  template <int N>
  [[gnu::noinline]] void Finish(int64_t column) {
    __m512 sum[N];
    for (int n = 0; n < N; ++n) sum[n] = V::Load(t.out + column + n * 16);
    AddOwnUpdates(column, sum);
    for (int n = 0; n < N; ++n) V::Store(t.out + column + n * 16, sum[n]);
  }

  explicit DeltaRow(const DeltaTask& task)
      : t(task), row(task.row_begin), own(task.row_begin & ~(kTileRows - 1)) {
    float* p = t.scratch;
    auto take = [&](int64_t floats) {
      float* at = p;
      p += floats;
      return at;
    };
    state_q = score_q = reinterpret_cast<uint16_t*>(take(t.dk / 2));
    state_k = score_k = reinterpret_cast<uint16_t*>(take(t.dk / 2));
    if (!t.channel_decay) return;
    score_q = reinterpret_cast<uint16_t*>(take(t.dk / 2));
    score_k = reinterpret_cast<uint16_t*>(take(t.dk / 2));
    near.near = take(12 * t.dk);
    near.row_k = take(t.dk);
    near.row_q = take(t.dk);
  }

  void Run() {
    if (t.s0) ahead.Add(t.s0, 4 * t.dk * t.dv);
    Append();
    RoundOperands();
    for (int j = 0; j <= own; j += kTileRows) Weights(j);
    ahead = {};
    ahead.Add(t.rows_u, 4 * row * t.dv);
    ahead.Add(t.next.rows_k, 4 * row * t.dk);
    if (t.channel_decay) ahead.Add(t.next.rows_g, 4 * row * t.dk);
    int64_t column = 0;
    for (; column + 128 <= t.dv; column += 128) Update<8>(column);
    for (; column < t.dv; column += 16) Update<1>(column);
    KeptRows<Lanes>::RoundRow(t.kept, t.rows_u + row * t.dv, t.dv);
    for (column = 0; column + 128 <= t.dv; column += 128) Finish<8>(column);
    for (; column < t.dv; column += 16) Finish<1>(column);
  }

  const DeltaTask& t;
  const int row, own;                               // the new one, and the first of its block of 16
  uint16_t *state_q, *state_k, *score_q, *score_k;  // [dk] left operands
  typename Near::Scratch near;
  alignas(64) float weights[32];       // on the own block, with a decay per channel
  alignas(64) float inside[16];        // of k on the own block
  alignas(64) uint16_t weights_q[96];  // of q on all rows up to the own
  alignas(64) uint16_t weights_k[96];  // of k on the blocks before
  FetchAhead ahead;
};

}  // namespace braid::ops::cpu
