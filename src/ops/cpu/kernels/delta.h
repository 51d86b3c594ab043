// The gated delta rule over rows of one chunk (see ops/linear_attention.h and DeltaTask). With S0
// the state at the chunk's start and G the prefix sums of the log decay, for row t:
//   u_t = beta_t (v_t - [exp(G_t) S0^T k_t + sum_{j<t} exp(G_t - G_j) (k_t . k_j) u_j])
//   o_t = exp(G_t) S0^T q_t + sum_{j<=t} exp(G_t - G_j) (q_t . k_j) u_j
//   S1  = exp(G_63) S0 + sum_j (exp(G_63 - G_j) k_j) u_j^T
// With a decay per channel, G is a vector and stands inside the sums over d; every exponent is a
// difference of a later and an earlier row, so no factor exceeds one. There a row's decay since an
// earlier one is taken in two factors that meet at a reference row between them: the first of the
// row's block of 16, or within it of 4, at absolute positions; then keys are scaled once per block.
// Every sum runs over d or j in a fixed order that depends on neither the other rows nor the step's
// cut, so a row is the same in prefill and in decode.
#pragma once

#include "ops/cpu/kernels/rows.h"
#include "ops/cpu/kernels/table.h"

namespace braid::ops::cpu {

template <class V>
struct Delta {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int kChunk = 64;

  struct Scratch {
    float* from_k;    // [64][dv] S0^T k of the new rows
    float* from_q;    // [64][dv]
    float* scaled;    // [64][dk] keys times a decay: of their row, later to the chunk's end
    float* scaled_q;  // [64][dk] queries times their row's decay
    float* weight_k;  // [64]
    float* weight_q;  // [64]
    float* decay;     // [max(64, dk)]
    float* far;       // [48][dk] keys of the blocks before times their decay up to the own one
    float* near;      // [12][dk] the same within the block
    float* row_k;     // [dk] k and q of one row times their decay since a reference
    float* row_q;
  };
  static Scratch Split(const DeltaTask& t) {
    float* p = t.scratch;
    Scratch s;
    s.from_k = p;
    s.from_q = s.from_k + kChunk * t.dv;
    s.scaled = s.from_q + kChunk * t.dv;
    s.scaled_q = s.scaled + kChunk * t.dk;
    s.weight_k = s.scaled_q + kChunk * t.dk;
    s.weight_q = s.weight_k + kChunk;
    s.decay = s.weight_q + kChunk;
    s.far = s.decay + (t.dk > kChunk ? t.dk : kChunk);
    s.near = s.far + 48 * t.dk;
    s.row_k = s.near + 12 * t.dk;
    s.row_q = s.row_k + t.dk;
    return s;
  }

  // out[r][c] = sum_d x[r][d] S[d][c] for R rows and C vectors of columns.
  template <int R, int C>
  static void StateTile(const float* const* x, const float* s, int64_t dk, int64_t dv,
                        float* const* out) {
    F acc[R][C];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) acc[r][c] = V::Zero();
    }
    for (int64_t d = 0; d < dk; ++d) {
      F b[C];
      for (int c = 0; c < C; ++c) b[c] = V::Load(s + d * dv + c * kLanes);
      for (int r = 0; r < R; ++r) {
        const F a = V::Set1(x[r][d]);
        for (int c = 0; c < C; ++c) acc[r][c] = V::Fma(a, b[c], acc[r][c]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) V::Store(out[r] + c * kLanes, acc[r][c]);
    }
  }

  template <int R>
  static void StateRows(const float* const* x, const DeltaTask& t, float* const* out) {
    constexpr int C = R > 2 ? 2 : 4;
    float* at[R];
    int64_t col = 0;
    for (; col + C * kLanes <= t.dv; col += C * kLanes) {
      for (int r = 0; r < R; ++r) at[r] = out[r] + col;
      StateTile<R, C>(x, t.s0 + col, t.dk, t.dv, at);
    }
    for (; col < t.dv; col += kLanes) {
      for (int r = 0; r < R; ++r) at[r] = out[r] + col;
      StateTile<R, 1>(x, t.s0 + col, t.dk, t.dv, at);
    }
  }

  // Prefix sums of the new rows' log decay.
  static void Accumulate(const DeltaTask& t) {
    const int64_t width = t.channel_decay ? t.dk : 1;
    for (int row = t.row_begin; row < t.row_end; ++row) {
      const float* log_decay = t.log_decay + (row - t.row_begin) * t.decay_stride;
      float* g = t.rows_g + row * width;
      for (int64_t d = 0; d < width; ++d) g[d] = (row > 0 ? g[d - width] : 0.0f) + log_decay[d];
    }
  }

  // The new rows of k and q times their decay since the chunk's start.
  static void ScaleRows(const DeltaTask& t, const Scratch& s) {
    for (int i = 0; i < t.row_end - t.row_begin; ++i) {
      const float* g = t.rows_g + (t.row_begin + i) * t.dk;
      for (int64_t d = 0; d < t.dk; d += kLanes) {
        const F decay = V::Exp(V::Load(g + d));
        const F k = V::Load(t.k + i * t.token_stride + d);
        const F q = V::Load(t.q + i * t.token_stride + d);
        V::Store(s.scaled + i * t.dk + d, V::Mul(decay, k));
        V::Store(s.scaled_q + i * t.dk + d, V::Mul(decay, q));
      }
    }
  }

  // S0^T k and S0^T q of the new rows; zero without a state.
  static void FromState(const DeltaTask& t, const Scratch& s) {
    const int rows = t.row_end - t.row_begin;
    if (!t.s0) {
      for (int64_t i = 0; i < rows * t.dv; ++i) s.from_k[i] = s.from_q[i] = 0.0f;
      return;
    }
    if (t.channel_decay) ScaleRows(t, s);
    const float* k = t.channel_decay ? s.scaled : t.k;
    const float* q = t.channel_decay ? s.scaled_q : t.q;
    const int64_t stride = t.channel_decay ? t.dk : t.token_stride;
    int i = 0;
    for (; i + 2 <= rows; i += 2) {
      const float* x[4] = {k + i * stride, k + (i + 1) * stride, q + i * stride,
                           q + (i + 1) * stride};
      float* out[4] = {s.from_k + i * t.dv, s.from_k + (i + 1) * t.dv, s.from_q + i * t.dv,
                       s.from_q + (i + 1) * t.dv};
      StateRows<4>(x, t, out);
    }
    if (i < rows) {
      const float* x[2] = {k + i * stride, q + i * stride};
      float* out[2] = {s.from_k + i * t.dv, s.from_q + i * t.dv};
      StateRows<2>(x, t, out);
    }
  }

  // weight_k[j] = k . k_j, weight_q[j] = q . k_j for J consecutive rows j.
  template <int J>
  static void Dots(const float* k, const float* q, const float* keys, int64_t dk, float* weight_k,
                   float* weight_q) {
    F acc_k[J], acc_q[J];
    for (int j = 0; j < J; ++j) acc_k[j] = acc_q[j] = V::Zero();
    for (int64_t d = 0; d < dk; d += kLanes) {
      const F vk = V::Load(k + d), vq = V::Load(q + d);
      for (int j = 0; j < J; ++j) {
        const F key = V::Load(keys + j * dk + d);
        acc_k[j] = V::Fma(vk, key, acc_k[j]);
        acc_q[j] = V::Fma(vq, key, acc_q[j]);
      }
    }
    for (int j = 0; j < J; ++j) {
      weight_k[j] = V::Sum(acc_k[j]);
      weight_q[j] = V::Sum(acc_q[j]);
    }
  }

  // Keys of rows [begin, end) times their decay up to row `reference`, which is not before them.
  static void ScaleKeys(const DeltaTask& t, int reference, int begin, int end, float* out) {
    const float* to = t.rows_g + reference * t.dk;
    for (int j = begin; j < end; ++j) {
      const float* g = t.rows_g + j * t.dk;
      for (int64_t d = 0; d < t.dk; d += kLanes) {
        const F decay = V::Exp(V::Sub(V::Load(to + d), V::Load(g + d)));
        V::Store(out + (j - begin) * t.dk + d, V::Mul(decay, V::Load(t.rows_k + j * t.dk + d)));
      }
    }
  }

  // k and q of row `row` times their decay since row `reference`.
  static void ScaleRow(const DeltaTask& t, int row, int reference, const float* k, const float* q,
                       float* row_k, float* row_q) {
    const float* g = t.rows_g + row * t.dk;
    const float* from = t.rows_g + reference * t.dk;
    for (int64_t d = 0; d < t.dk; d += kLanes) {
      const F decay = V::Exp(V::Sub(V::Load(g + d), V::Load(from + d)));
      V::Store(row_k + d, V::Mul(decay, V::Load(k + d)));
      V::Store(row_q + d, V::Mul(decay, V::Load(q + d)));
    }
  }

  static void DotsOfRows(const float* k, const float* q, const float* keys, int64_t dk, int count,
                         float* weight_k, float* weight_q) {
    int j = 0;
    for (; j + 4 <= count; j += 4) Dots<4>(k, q, keys + j * dk, dk, weight_k + j, weight_q + j);
    for (; j < count; ++j) Dots<1>(k, q, keys + j * dk, dk, weight_k + j, weight_q + j);
  }

  // Weights with a decay per channel, sum_d exp(g[d] - g_j[d]) k[d] k_j[d], of the rows of the own
  // block of 16 up to `row`. `near` and the scaled row are scratch; `near` is filled by the first
  // of the rows of a block of 4 that one call has.
  static void NearWeights(const DeltaTask& t, const Scratch& s, int row, const float* k,
                          const float* q, float* weight_k, float* weight_q) {
    const int block = row / 16 * 16, reference = row / 4 * 4;
    if (row == reference || row == t.row_begin) ScaleKeys(t, reference, block, reference, s.near);
    ScaleRow(t, row, reference, k, q, s.row_k, s.row_q);
    DotsOfRows(s.row_k, s.row_q, s.near, t.dk, reference - block, weight_k, weight_q);
    const float* g = t.rows_g + row * t.dk;
    for (int j = reference; j <= row; ++j) {
      F acc_k = V::Zero(), acc_q = V::Zero();
      for (int64_t d = 0; d < t.dk; d += kLanes) {
        F key = V::Load(t.rows_k + j * t.dk + d);
        if (j < row) {  // or the decay is one
          key = V::Mul(V::Exp(V::Sub(V::Load(g + d), V::Load(t.rows_g + j * t.dk + d))), key);
        }
        acc_k = V::Fma(V::Load(k + d), key, acc_k);
        acc_q = V::Fma(V::Load(q + d), key, acc_q);
      }
      weight_k[j - block] = V::Sum(acc_k);
      weight_q[j - block] = V::Sum(acc_q);
    }
  }

  static void ChannelWeights(const DeltaTask& t, const Scratch& s, int row, const float* k,
                             const float* q) {
    const int block = row / 16 * 16;
    if (row == block || row == t.row_begin) ScaleKeys(t, block, 0, block, s.far);
    ScaleRow(t, row, block, k, q, s.row_k, s.row_q);
    DotsOfRows(s.row_k, s.row_q, s.far, t.dk, block, s.weight_k, s.weight_q);
    NearWeights(t, s, row, k, q, s.weight_k + block, s.weight_q + block);
  }

  // Decayed weights of rows 0 … row on row `row`, and as the return value the decay of what the
  // state contributes.
  static float Weights(const DeltaTask& t, const Scratch& s, int row, const float* k,
                       const float* q) {
    if (t.channel_decay) {
      ChannelWeights(t, s, row, k, q);
      return 1.0f;  // it is in the scaled rows already
    }
    DotsOfRows(k, q, t.rows_k, t.dk, row + 1, s.weight_k, s.weight_q);
    const F g = V::Set1(t.rows_g[row]);
    for (int j = 0; j <= row; j += kLanes) {
      const F decay = V::Exp(V::Sub(g, V::Load(t.rows_g + j)));
      V::Store(s.weight_k + j, V::Mul(V::Load(s.weight_k + j), decay));
      V::Store(s.weight_q + j, V::Mul(V::Load(s.weight_q + j), decay));
    }
    V::Store(s.decay, V::Exp(g));
    return s.decay[0];
  }

  // init * decay + sum_{j < count} weight[j] u_j over C vectors of columns from col.
  template <int C>
  static void Combine(const DeltaTask& t, const float* init, float decay, const float* weight,
                      int count, int64_t col, F (&acc)[C]) {
    const F d = V::Set1(decay);
    for (int c = 0; c < C; ++c) acc[c] = V::Mul(d, V::Load(init + col + c * kLanes));
    for (int j = 0; j < count; ++j) {
      const F w = V::Set1(weight[j]);
      const float* u = t.rows_u + j * t.dv + col;
      for (int c = 0; c < C; ++c) acc[c] = V::Fma(w, V::Load(u + c * kLanes), acc[c]);
    }
  }

  template <int C>
  static void UpdateTile(const DeltaTask& t, const Scratch& s, int row, float decay, int64_t col) {
    const int i = row - t.row_begin;
    const float* v = t.v + i * t.token_stride + col;
    float* u = t.rows_u + row * t.dv + col;
    if (t.add) {
      for (int c = 0; c < C; ++c) V::Store(u + c * kLanes, V::Load(v + c * kLanes));
      return;
    }
    const F beta = V::Set1(t.beta[i * t.beta_stride]);
    F memory[C];
    Combine<C>(t, s.from_k + i * t.dv, decay, s.weight_k, row, col, memory);
    for (int c = 0; c < C; ++c) {
      V::Store(u + c * kLanes, V::Mul(beta, V::Sub(V::Load(v + c * kLanes), memory[c])));
    }
  }

  template <int C>
  static void OutTile(const DeltaTask& t, const Scratch& s, int row, float decay, int64_t col) {
    const int i = row - t.row_begin;
    F acc[C];
    Combine<C>(t, s.from_q + i * t.dv, decay, s.weight_q, row + 1, col, acc);
    for (int c = 0; c < C; ++c) V::Store(t.out + i * t.out_stride + col + c * kLanes, acc[c]);
  }

  static void Row(const DeltaTask& t, const Scratch& s, int row) {
    const int i = row - t.row_begin;
    const float* k = t.k + i * t.token_stride;
    const float* q = t.q + i * t.token_stride;
    for (int64_t d = 0; d < t.dk; ++d) t.rows_k[row * t.dk + d] = k[d];
    const float decay = Weights(t, s, row, k, q);
    int64_t col = 0;
    for (; col + 8 * kLanes <= t.dv; col += 8 * kLanes) UpdateTile<8>(t, s, row, decay, col);
    for (; col + 4 * kLanes <= t.dv; col += 4 * kLanes) UpdateTile<4>(t, s, row, decay, col);
    for (; col < t.dv; col += kLanes) UpdateTile<1>(t, s, row, decay, col);
    KeptRows<V>::RoundRow(t.kept, t.rows_u + row * t.dv, t.dv);
    for (col = 0; col + 8 * kLanes <= t.dv; col += 8 * kLanes) OutTile<8>(t, s, row, decay, col);
    for (; col + 4 * kLanes <= t.dv; col += 4 * kLanes) OutTile<4>(t, s, row, decay, col);
    for (; col < t.dv; col += kLanes) OutTile<1>(t, s, row, decay, col);
  }

  // S1[d][c] for D rows d and C vectors of columns.
  template <int D, int C>
  static void FinishTile(const DeltaTask& t, const Scratch& s, int64_t d, int64_t col) {
    F acc[D][C];
    for (int r = 0; r < D; ++r) {
      const F g = V::Set1(s.decay[t.channel_decay ? d + r : 0]);
      for (int c = 0; c < C; ++c) {
        acc[r][c] = t.s0 ? V::Mul(g, V::Load(t.s0 + (d + r) * t.dv + col + c * kLanes)) : V::Zero();
      }
    }
    for (int j = 0; j < kChunk; ++j) {
      F u[C];
      for (int c = 0; c < C; ++c) u[c] = V::Load(t.rows_u + j * t.dv + col + c * kLanes);
      for (int r = 0; r < D; ++r) {
        const F k = V::Set1(s.scaled[j * t.dk + d + r]);
        for (int c = 0; c < C; ++c) acc[r][c] = V::Fma(k, u[c], acc[r][c]);
      }
    }
    for (int r = 0; r < D; ++r) {
      for (int c = 0; c < C; ++c) V::Store(t.s1 + (d + r) * t.dv + col + c * kLanes, acc[r][c]);
    }
  }

  // Keys times their decay to the chunk's end, and in `decay` the state's.
  static void ChannelFinishScale(const DeltaTask& t, const Scratch& s) {
    const float* last = t.rows_g + (kChunk - 1) * t.dk;
    for (int64_t d = 0; d < t.dk; d += kLanes) {
      const F g = V::Load(last + d);
      V::Store(s.decay + d, V::Exp(g));
      for (int j = 0; j < kChunk; ++j) {
        const F e = V::Exp(V::Sub(g, V::Load(t.rows_g + j * t.dk + d)));
        V::Store(s.scaled + j * t.dk + d, V::Mul(e, V::Load(t.rows_k + j * t.dk + d)));
      }
    }
  }

  static void FinishScale(const DeltaTask& t, const Scratch& s) {
    const F last = V::Set1(t.rows_g[kChunk - 1]);
    for (int j = 0; j < kChunk; j += kLanes) {
      V::Store(s.decay + j, V::Exp(V::Sub(last, V::Load(t.rows_g + j))));
    }
    for (int j = 0; j < kChunk; ++j) {
      const F e = V::Set1(s.decay[j]);
      for (int64_t d = 0; d < t.dk; d += kLanes) {
        V::Store(s.scaled + j * t.dk + d, V::Mul(e, V::Load(t.rows_k + j * t.dk + d)));
      }
    }
    V::Store(s.decay, V::Exp(last));
  }

  static void Finish(const DeltaTask& t, const Scratch& s) {
    t.channel_decay ? ChannelFinishScale(t, s) : FinishScale(t, s);
    for (int64_t d = 0; d < t.dk; d += 4) {
      int64_t col = 0;
      for (; col + 2 * kLanes <= t.dv; col += 2 * kLanes) FinishTile<4, 2>(t, s, d, col);
      for (; col < t.dv; col += kLanes) FinishTile<4, 1>(t, s, d, col);
    }
  }

  static void Run(const DeltaTask& t) {
    const Scratch s = Split(t);
    Accumulate(t);
    FromState(t, s);
    for (int row = t.row_begin; row < t.row_end; ++row) Row(t, s, row);
    if (t.s1 && t.row_end == kChunk) Finish(t, s);
  }
};

}  // namespace braid::ops::cpu
