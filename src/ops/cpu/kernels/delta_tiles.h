// The gated delta rule over rows of one chunk with its products on tiles of 16 rows
// (kernels/tiles.h): operands rounded to bf16, sums, state, decays and the triangular solve inside
// 16 rows in fp32. The formulas are those of kernels/delta.h; a decay per channel is applied before
// the rounding. Rows are solved in blocks of 16 at absolute positions, and a row takes the same
// steps of 32 terms whichever other rows are new, so its bits are the same in prefill and in
// decode.
#pragma once

#include <immintrin.h>

#include "ops/cpu/kernels/delta.h"
#include "ops/cpu/kernels/delta_tiles_scratch.h"
#include "ops/cpu/kernels/fetch_ahead.h"
#include "ops/cpu/kernels/table.h"
#include "ops/cpu/kernels/tiles.h"

namespace braid::ops::cpu {

// `Tiles` computes the products: of tile registers or of vectors.
template <class Tiles>
class TiledDelta {
 public:
  static void Run(const DeltaTask& t) { TiledDelta(t).Run(); }

  // The state after the chunk, from rows that are complete.
  static void FinishChunk(const DeltaTask& t) {
    TiledDelta delta(t);
    for (int block = 0; t.channel_decay && block < kBlocks; ++block) {
      delta.PackUpdates(block, kChunk, nullptr, delta.s.updates);
    }
    delta.Finish();
  }

 private:
  using V = VecAvx512;
  static constexpr int kChunk = 64;
  static constexpr int kBlocks = kChunk / kTileRows;

  // Delta's loops, instantiated for the flags of one file alone.
  struct Lanes : VecAvx512 {};
  using Near = Delta<Lanes>;
  using Scratch = TiledDeltaScratch<Near>;

  static void ScaleBy(const float* factors, int64_t count, float* x) {
    for (int64_t i = 0; i < count; i += 16) {
      V::Store(x + i, V::Mul(V::Load(factors + i), V::Load(x + i)));
    }
  }

  // [dk][dv] as right operands.
  void PackState(uint16_t* tiles) {
    for (int64_t d = 0; d < t.dk; d += 2) {
      uint16_t* row = tiles + d / kTileDepth * kTileElements + d % kTileDepth * 16;
      for (int64_t c = 0; c < t.dv; c += 16) {
        const float* at = t.s0 + d * t.dv + c;
        _mm512_storeu_si512(row + c * t.dk, Interleave(V::Load(at), V::Load(at + t.dv)));
      }
    }
  }

  // The rows of u of one block, each times its factor, as right operands; zero from row `end` on.
  // False: something there is not finite.
  bool PackUpdates(int block, int end, const float* factors, uint16_t* tiles) {
    __m512 zeros = V::Zero();  // zero times all of them
    for (int row = block * kTileRows; row < (block + 1) * kTileRows; row += 2) {
      uint16_t* out = tiles + row / kTileDepth * kTileElements + row % kTileDepth * 16;
      const float* u = t.rows_u + row * t.dv;
      const __m512 first = V::Set1(factors ? factors[row] : 1.0f);
      const __m512 second = V::Set1(factors ? factors[row + 1] : 1.0f);
      for (int64_t c = 0; c < t.dv; c += 16) {
        __m512 a = V::Zero(), b = V::Zero();
        if (row < end) a = V::Mul(first, V::Load(u + c));
        if (row + 1 < end) b = V::Mul(second, V::Load(u + t.dv + c));
        const __m512i pairs = Interleave(a, b);
        zeros = _mm512_dpbf16_ps(zeros, reinterpret_cast<__m512bh>(pairs), __m512bh{});
        _mm512_storeu_si512(out + c * kChunk, pairs);
      }
    }
    return _mm512_cmp_ps_mask(zeros, zeros, _CMP_UNORD_Q) == 0;
  }

  // The new rows of k and the prefix sums of their log decay.
  void AppendRows() {
    constexpr int64_t kAhead = 6;
    const int64_t width = t.channel_decay ? t.dk : 1;
    for (int row = t.row_begin; row < t.row_end; ++row) {
      const int64_t i = row - t.row_begin;
      const float* log_decay = t.log_decay + i * t.decay_stride;
      float* g = t.rows_g + row * width;
      for (int64_t d = 0; d < width; ++d) g[d] = (row > 0 ? g[d - width] : 0.0f) + log_decay[d];
      PrefetchRow(t.v + i * t.token_stride, t.dv);
      if (t.same_keys) continue;
      const float* k = t.k + i * t.token_stride;
      if (row + kAhead < t.row_end) {
        PrefetchRow(k + kAhead * t.token_stride, t.dk);
        PrefetchRow(t.q + (i + kAhead) * t.token_stride, t.dk);
      }
      for (int64_t d = 0; d < t.dk; d += 16) V::Store(t.rows_k + row * t.dk + d, V::Load(k + d));
    }
  }

  // 16 rows of `rows`, which begin at row 16 * block, as right operands of scores.
  void PackKeyTiles(const uint16_t* rows, int block) {
    PackRowsAsOutputs(rows, t.dk, static_cast<int>(t.dk / kTileDepth),
                      s.key_tiles + block * kTileRows * t.dk);
  }

  // A decay per head: k and q enter products as they are, scores and products are decayed. What
  // is made here serves all heads with these keys.
  void PackRows() {
    for (int row = t.row_begin; row < t.row_end; ++row) {
      RoundRow(t.q + (row - t.row_begin) * t.token_stride, s.queries + row * t.dk, t.dk);
    }
    for (int row = 0; row < t.row_end; ++row) {
      RoundRow(t.rows_k + row * t.dk, s.keys + row * t.dk, t.dk);
    }
    for (int block = 0; block * kTileRows < t.row_end; ++block) {
      PackKeyTiles(s.keys + block * kTileRows * t.dk, block);
    }
    for (int block = FirstBlock(); block * kTileRows < t.row_end; ++block) {
      Scores(RowBegin(block), block);
    }
  }

  // A decay per channel: k and q of rows [begin, end) of one block times their decay since the
  // block's start, for the keys of the blocks before, which are taken up to there; and these times
  // the decay since the chunk's start, for S0.
  void PackDecayedRows(int begin, int end) {
    const int own = begin & ~(kTileRows - 1);
    float* before = s.scaled;
    for (int64_t d = 0; d < t.dk; d += 16) {
      V::Store(before + d, V::Exp(V::Load(t.rows_g + own * t.dk + d)));
    }
    for (int row = begin; row < end; ++row) {
      const float* k = t.rows_k + row * t.dk;
      const float* q = t.q + (row - t.row_begin) * t.token_stride;
      Near::ScaleRow(t, row, own, k, q, s.near.row_k, s.near.row_q);
      RoundRow(s.near.row_k, s.score_keys + row * t.dk, t.dk);
      RoundRow(s.near.row_q, s.score_queries + row * t.dk, t.dk);
      ScaleBy(before, t.dk, s.near.row_k);
      ScaleBy(before, t.dk, s.near.row_q);
      RoundRow(s.near.row_k, s.keys + row * t.dk, t.dk);
      RoundRow(s.near.row_q, s.queries + row * t.dk, t.dk);
    }
    Near::ScaleKeys(t, own, 0, own, s.scaled);
    for (int row = 0; row < own; ++row)
      RoundRow(s.scaled + row * t.dk, s.rounded + row * t.dk, t.dk);
    for (int block = 0; block < own / kTileRows; ++block) {
      PackKeyTiles(s.rounded + block * kTileRows * t.dk, block);
    }
  }

  // S0^T k and S0^T q of the rows from `row` on; zero without a state.
  void FromState(int row) {
    float* from_q = s.from_q + row * t.dv;
    float* from_k = s.from_k + row * t.dv;
    if (!t.s0) {
      for (int64_t i = 0; i < kTileRows * t.dv; i += 16) {
        V::Store(from_k + i, V::Zero());
        V::Store(from_q + i, V::Zero());
      }
      return;
    }
    TileProduct p{.a = s.queries + row * t.dk,
                  .a_row = t.dk,
                  .a_step = kTileDepth,
                  .b = s.state,
                  .b_column = t.dk * 16,
                  .c = from_q,
                  .c_row = t.dv,
                  .steps = static_cast<int>(t.dk / kTileDepth),
                  .columns = static_cast<int>(t.dv / 16),
                  .add = false};
    tiles.Multiply(p);
    if (t.add) return;
    p.a = s.keys + row * t.dk;
    p.c = from_k;
    tiles.Multiply(p);
  }

  // Products with the keys of the blocks before and, with a decay per head, of the own one.
  void Scores(int row, int block) {
    const int columns = block + (t.channel_decay ? 0 : 1);
    TileProduct p{.a = s.score_queries + row * t.dk,
                  .a_row = t.dk,
                  .a_step = kTileDepth,
                  .b = s.key_tiles,
                  .b_column = kTileRows * t.dk,
                  .c = s.scores_q + row * kChunk,
                  .c_row = kChunk,
                  .steps = static_cast<int>(t.dk / kTileDepth),
                  .columns = columns,
                  .add = false};
    tiles.Multiply(p);
    if (t.add) return;
    p.a = s.score_keys + row * t.dk;
    p.c = s.scores_k + row * kChunk;
    tiles.Multiply(p);
  }

  // Weights of one row on the 16 rows from j: a product with its decay, or what has it already.
  // What stands above the diagonal is replaced, never multiplied, for its decay may have
  // overflowed.
  void Weights(int row, int block) {
    const int own = block * kTileRows;
    if (t.channel_decay) {
      Near::NearWeights(t, s.near, row, t.rows_k + row * t.dk,
                        t.q + (row - t.row_begin) * t.token_stride, s.weights[0], s.weights[1]);
    }
    for (int j = 0; j <= own; j += kTileRows) {
      const int64_t at = row * kChunk + j;
      const bool near = t.channel_decay && j == own;
      const __mmask16 before =
          j < own ? __mmask16{0xffff} : static_cast<__mmask16>((1u << (row - own)) - 1);
      const __mmask16 upto = static_cast<__mmask16>(2u * before + 1u);
      __m512 w_k = _mm512_maskz_loadu_ps(before, near ? s.weights[0] : s.scores_k + at);
      __m512 w_q = _mm512_maskz_loadu_ps(upto, near ? s.weights[1] : s.scores_q + at);
      if (!t.channel_decay) {
        const __m512 decay = V::Exp(V::Sub(V::Set1(t.rows_g[row]), V::Load(t.rows_g + j)));
        w_k = _mm512_maskz_mul_ps(before, w_k, decay);
        w_q = _mm512_maskz_mul_ps(upto, w_q, decay);
      }
      if (j == own) V::Store(s.inside + row * kTileRows, w_k);
      // A step of 32 terms also covers the block behind an even one.
      _mm512_storeu_si512(s.weights_q + at, RoundPair(w_q, V::Zero()));
      _mm512_storeu_si512(s.weights_k + at, RoundPair(j < own ? w_k : V::Zero(), V::Zero()));
    }
  }

  // c += weights u over the first `steps` steps of 32 rows.
  void AddUpdates(const uint16_t* weights, float* c, int steps) {
    tiles.Multiply({.a = weights,
                    .a_row = kChunk,
                    .a_step = kTileDepth,
                    .b = s.updates,
                    .b_column = kChunk * 16,
                    .c = c,
                    .c_row = t.dv,
                    .steps = steps,
                    .columns = static_cast<int>(t.dv / 16),
                    .add = true});
  }

  // A row's weights on the rows behind it are zero, but zero times infinity or NaN is NaN: here
  // rows are taken as decode has them, one by one, with no more of the block than is before each.
  void AddUpdatesByRow(int block, int begin, int end) {
    tiles.SetRows(1);
    for (int row = begin; row < end; ++row) {
      PackUpdates(block, row + 1, nullptr, s.updates);
      AddUpdates(s.weights_q + row * kChunk, s.from_q + row * t.dv, block / 2 + 1);
    }
    tiles.SetRows(ProductRows());
  }

  // u of one row over C vectors of columns: the rows of its block before it, one after the other.
  template <int C>
  void SolveColumns(int row, int64_t col) {
    const int own = row & ~(kTileRows - 1);
    const float* v = t.v + (row - t.row_begin) * t.token_stride + col;
    float* u = t.rows_u + row * t.dv + col;
    __m512 memory[C];
    for (int c = 0; c < C; ++c) memory[c] = V::Load(s.from_k + row * t.dv + col + c * 16);
    for (int j = own; j < row; ++j) {
      const __m512 w = V::Set1(s.inside[row * kTileRows + j - own]);
      const float* uj = t.rows_u + j * t.dv + col;
      for (int c = 0; c < C; ++c) memory[c] = V::Fma(w, V::Load(uj + c * 16), memory[c]);
    }
    const __m512 beta = V::Set1(t.beta[(row - t.row_begin) * t.beta_stride]);
    for (int c = 0; c < C; ++c) {
      V::Store(u + c * 16, V::Mul(beta, V::Sub(V::Load(v + c * 16), memory[c])));
    }
  }

  void Solve(int row) {
    float* u = t.rows_u + row * t.dv;
    int64_t col = 0;
    if (t.add) {
      const float* v = t.v + (row - t.row_begin) * t.token_stride;
      for (; col < t.dv; col += 16) V::Store(u + col, V::Load(v + col));
    }
    for (; col + 128 <= t.dv; col += 128) SolveColumns<8>(row, col);
    for (; col + 32 <= t.dv; col += 32) SolveColumns<2>(row, col);
    for (; col < t.dv; col += 16) SolveColumns<1>(row, col);
    KeptRows<Lanes>::RoundRow(t.kept, u, t.dv);
  }

  // The new rows of one block. A product also writes rows behind the last one, which are computed
  // again when it is their turn.
  void Block(int block) {
    const int begin = RowBegin(block), behind = (block + 1) * kTileRows;
    const int end = t.row_end < behind ? t.row_end : behind;
    if (t.channel_decay) {
      PackDecayedRows(begin, end);
      Scores(begin, block);
    }
    FromState(begin);
    for (int row = begin; row < end; ++row) {
      FetchNextRow(t, row);
      Weights(row, block);
      if (t.channel_decay) continue;
      const __m512 decay = V::Set1(s.decay[row]);
      for (int64_t i = row * t.dv; i < (row + 1) * t.dv; i += 16) {
        V::Store(s.from_q + i, V::Mul(decay, V::Load(s.from_q + i)));
        if (!t.add) V::Store(s.from_k + i, V::Mul(decay, V::Load(s.from_k + i)));
      }
    }
    if (block > 0 && !t.add) {
      AddUpdates(s.weights_k + begin * kChunk, s.from_k + begin * t.dv, (block + 1) / 2);
    }
    for (int row = begin; row < end; ++row) Solve(row);
    if (PackUpdates(block, end, nullptr, s.updates)) {
      AddUpdates(s.weights_q + begin * kChunk, s.from_q + begin * t.dv, block / 2 + 1);
    } else {
      AddUpdatesByRow(block, begin, end);
    }
    for (int row = begin; row < end; ++row) {
      float* out = t.out + (row - t.row_begin) * t.out_stride;
      const float* from = s.from_q + row * t.dv;
      if (t.past_caches) {
        for (int64_t c = 0; c < t.dv; c += 16) _mm512_stream_ps(out + c, V::Load(from + c));
      } else {
        for (int64_t c = 0; c < t.dv; c += 16) V::Store(out + c, V::Load(from + c));
      }
    }
  }

  // With a decay per channel, u is packed already.
  // S1 = exp(G_63) S0 + sum_j k_j (exp(G_63 - G_j) u_j)^T; with a decay per channel the keys have
  // it.
  void Finish() {
    tiles.SetRows(kTileRows);
    uint16_t* columns = s.key_tiles;
    const float* last = t.rows_g + (kChunk - 1) * (t.channel_decay ? t.dk : 1);
    if (t.channel_decay) {
      Near::ScaleKeys(t, kChunk - 1, 0, kChunk, s.scaled);
      PackColumnsAsRows(s.scaled, kChunk, t.dk, columns);
    } else {
      for (int j = 0; j < kChunk; j += 16) {
        V::Store(s.decay + j, V::Exp(V::Sub(V::Set1(*last), V::Load(t.rows_g + j))));
      }
      for (int block = 0; block < kBlocks; ++block) PackUpdates(block, kChunk, s.decay, s.updates);
      if (!t.same_keys) PackColumnsAsRows(t.rows_k, kChunk, t.dk, columns);
    }
    for (int64_t d = 0; t.s0 && d < t.dk; ++d) {
      const __m512 decay = V::Exp(V::Set1(last[t.channel_decay ? d : 0]));
      for (int64_t i = d * t.dv; i < (d + 1) * t.dv; i += 16) {
        V::Store(t.s1 + i, V::Mul(decay, V::Load(t.s0 + i)));
      }
    }
    for (int64_t d = 0; d < t.dk; d += kTileRows) {
      tiles.Multiply({.a = columns + d * kChunk,
                      .a_row = kTileDepth,
                      .a_step = kTileElements,
                      .b = s.updates,
                      .b_column = kChunk * 16,
                      .c = t.s1 + d * t.dv,
                      .c_row = t.dv,
                      .steps = kChunk / kTileDepth,
                      .columns = static_cast<int>(t.dv / 16),
                      .add = t.s0 != nullptr});
    }
  }

  explicit TiledDelta(const DeltaTask& task)
      : t(task), s(Scratch::Split(task)), tiles(ProductRows()) {}

  int NewRows() const { return t.row_end - t.row_begin; }
  int ProductRows() const { return NewRows() < kTileRows ? NewRows() : kTileRows; }
  int FirstBlock() const { return t.row_begin / kTileRows; }
  int RowBegin(int block) const {
    return t.row_begin > block * kTileRows ? t.row_begin : block * kTileRows;
  }

  void Run() {
    AppendRows();
    if (!t.channel_decay) {
      if (!t.same_keys) PackRows();
      for (int row = t.row_begin & ~15; row < t.row_end; row += 16) {
        V::Store(s.decay + row, V::Exp(V::Load(t.rows_g + row)));
      }
    }
    if (t.s0) PackState(s.state);
    // Steps of 32 rows read one block more than is solved, with weights of zero.
    for (int64_t i = 0; i < kChunk * t.dv; i += 32) {
      _mm512_storeu_si512(s.updates + i, __m512i{});
    }
    for (int block = 0; block * kTileRows < t.row_begin; ++block) {
      PackUpdates(block, t.row_begin, nullptr, s.updates);
    }
    for (int block = FirstBlock(); block * kTileRows < t.row_end; ++block) Block(block);
    if (t.s1 && t.row_end == kChunk) Finish();
    if (t.past_caches) _mm_sfence();
  }

  const DeltaTask& t;
  const Scratch s;
  Tiles tiles;
};

}  // namespace braid::ops::cpu
