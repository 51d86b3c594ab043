// The gated delta rule over rows of one chunk with its products on tile registers: operands rounded
// to bf16, sums, state, decays and the triangular solve inside 16 rows in fp32. The formulas are
// those of kernels/delta.h; a decay per channel is applied before the rounding. Rows are solved in
// blocks of 16 at absolute positions, and a row takes the same steps of 32 terms whichever other
// rows are new, so its bits are the same in prefill and in decode.
#include "ops/cpu/kernels/delta.h"

#include <immintrin.h>

#include "ops/cpu/kernels/table.h"
#include "ops/cpu/kernels/tiles.h"

namespace braid::cpu {
namespace {

using V = VecAvx512;
constexpr int kChunk = 64;
constexpr int kBlocks = kChunk / kTileRows;
// A tile may begin at any row and reads 16.
constexpr int kRows = kChunk + kTileRows;

// Delta's loops, instantiated for the flags of this file alone.
struct Lanes : VecAvx512 {};
using Near = Delta<Lanes>;

struct Scratch {
  float* from_k;      // [kRows][dv] S0^T k of the new rows, then what the memory holds for them
  float* from_q;      // [kRows][dv] the same of q, then the output
  float* scores_k;    // [kRows][64] k . k_j; with a decay per channel decayed, of earlier blocks
  float* scores_q;    // [kRows][64] q . k_j
  float* inside;      // [64][16] decayed weights on the rows of the own block
  float* decay;       // [64]
  float* scaled;      // [64][dk] keys times a decay per channel
  uint16_t* rounded;  // [64][dk] the same
  float* weights[2];  // [16] weights of k and q with a decay per channel on the own block
  Near::Scratch near;
  uint16_t* state;          // tiles of S0
  uint16_t* keys;           // [kRows][dk] left operands of products with S0
  uint16_t* queries;        // [kRows][dk]
  uint16_t* score_keys;     // [kRows][dk] left operands of products with keys
  uint16_t* score_queries;  // [kRows][dk]
  uint16_t* key_tiles;      // keys as right operands, one column of tiles per block
  uint16_t* updates;        // tiles of u
  uint16_t* weights_k;      // [kRows][64] decayed weights on rows of the blocks before
  uint16_t* weights_q;      // [kRows][64] decayed weights on all rows up to the own
};

Scratch Split(const DeltaTask& t) {
  Scratch s = {};
  float* p = t.scratch;
  auto take = [&](int64_t floats) {
    float* at = p;
    p += floats;
    return at;
  };
  auto take_bf16 = [&](int64_t count) { return reinterpret_cast<uint16_t*>(take(count / 2)); };
  s.from_k = take(kRows * t.dv);
  s.from_q = take(kRows * t.dv);
  s.scores_k = take(kRows * kChunk);
  s.scores_q = take(kRows * kChunk);
  s.inside = take(kChunk * kTileRows);
  s.decay = take(kChunk);
  s.state = take_bf16(t.dk * t.dv);
  s.keys = s.score_keys = take_bf16(kRows * t.dk);
  s.queries = s.score_queries = take_bf16(kRows * t.dk);
  s.key_tiles = take_bf16(kChunk * t.dk);
  s.updates = take_bf16(kChunk * t.dv);
  s.weights_k = take_bf16(kRows * kChunk);
  s.weights_q = take_bf16(kRows * kChunk);
  if (!t.channel_decay) return s;
  s.score_keys = take_bf16(kRows * t.dk);
  s.score_queries = take_bf16(kRows * t.dk);
  s.scaled = take(kChunk * t.dk);
  s.rounded = take_bf16(kChunk * t.dk);
  for (float*& weights : s.weights) weights = take(kTileRows);
  s.near.near = take(12 * t.dk);
  s.near.row_k = take(t.dk);
  s.near.row_q = take(t.dk);
  return s;
}

// [dk][dv] as right operands.
void PackState(const DeltaTask& t, uint16_t* tiles) {
  for (int64_t d = 0; d < t.dk; d += 2) {
    uint16_t* row = tiles + d / kTileDepth * kTileElements + d % kTileDepth * 16;
    for (int64_t c = 0; c < t.dv; c += 16) {
      const float* at = t.s0 + d * t.dv + c;
      _mm512_storeu_si512(row + c * t.dk, Interleave(V::Load(at), V::Load(at + t.dv)));
    }
  }
}

// The rows of u of one block, each times its factor, as right operands; zero from row `end` on.
void PackUpdates(const DeltaTask& t, int block, int end, const float* factors, uint16_t* tiles) {
  for (int row = block * kTileRows; row < (block + 1) * kTileRows; row += 2) {
    uint16_t* out = tiles + row / kTileDepth * kTileElements + row % kTileDepth * 16;
    const float* u = t.rows_u + row * t.dv;
    const __m512 first = V::Set1(factors ? factors[row] : 1.0f);
    const __m512 second = V::Set1(factors ? factors[row + 1] : 1.0f);
    for (int64_t c = 0; c < t.dv; c += 16) {
      __m512 a = V::Zero(), b = V::Zero();
      if (row < end) a = V::Mul(first, V::Load(u + c));
      if (row + 1 < end) b = V::Mul(second, V::Load(u + t.dv + c));
      _mm512_storeu_si512(out + c * kChunk, Interleave(a, b));
    }
  }
}

// A token's row of q, k or v lies far from the next one's, where no hardware looks ahead.
void Prefetch(const float* row, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) _mm_prefetch(row + i, _MM_HINT_T0);
}

// The new rows of k and the prefix sums of their log decay.
void AppendRows(const DeltaTask& t) {
  constexpr int64_t kAhead = 6;
  const int64_t width = t.channel_decay ? t.dk : 1;
  for (int row = t.row_begin; row < t.row_end; ++row) {
    const int64_t i = row - t.row_begin;
    const float* k = t.k + i * t.token_stride;
    if (row + kAhead < t.row_end) {
      Prefetch(k + kAhead * t.token_stride, t.dk);
      Prefetch(t.q + (i + kAhead) * t.token_stride, t.dk);
    }
    Prefetch(t.v + i * t.token_stride, t.dv);
    for (int64_t d = 0; d < t.dk; d += 16) V::Store(t.rows_k + row * t.dk + d, V::Load(k + d));
    const float* log_decay = t.log_decay + i * t.decay_stride;
    float* g = t.rows_g + row * width;
    for (int64_t d = 0; d < width; ++d) g[d] = (row > 0 ? g[d - width] : 0.0f) + log_decay[d];
  }
}

// 16 rows of `rows`, which begin at row 16 * block, as right operands of scores.
void PackKeyTiles(const DeltaTask& t, const Scratch& s, const uint16_t* rows, int block) {
  PackRowsAsOutputs(rows, t.dk, static_cast<int>(t.dk / kTileDepth),
                    s.key_tiles + block * kTileRows * t.dk);
}

// A decay per head: k and q enter products as they are, scores and products are decayed.
void PackRows(const DeltaTask& t, const Scratch& s) {
  for (int row = t.row_begin; row < t.row_end; ++row) {
    RoundRow(t.q + (row - t.row_begin) * t.token_stride, s.queries + row * t.dk, t.dk);
  }
  for (int row = 0; row < t.row_end; ++row) {
    RoundRow(t.rows_k + row * t.dk, s.keys + row * t.dk, t.dk);
  }
  for (int block = 0; block * kTileRows < t.row_end; ++block) {
    PackKeyTiles(t, s, s.keys + block * kTileRows * t.dk, block);
  }
  for (int row = t.row_begin & ~15; row < t.row_end; row += 16) {
    V::Store(s.decay + row, V::Exp(V::Load(t.rows_g + row)));
  }
}

// A decay per channel: k and q of rows [begin, end) of one block times their decay since the
// chunk's start, for S0, and since the block's, for the keys of the blocks before, which are taken
// up to there.
void PackDecayedRows(const DeltaTask& t, const Scratch& s, int begin, int end) {
  const int own = begin & ~(kTileRows - 1);
  for (int row = begin; row < end; ++row) {
    const float* k = t.rows_k + row * t.dk;
    const float* q = t.q + (row - t.row_begin) * t.token_stride;
    for (int64_t d = 0; d < t.dk; d += 16) {
      const __m512 decay = V::Exp(V::Load(t.rows_g + row * t.dk + d));
      V::Store(s.near.row_k + d, V::Mul(decay, V::Load(k + d)));
      V::Store(s.near.row_q + d, V::Mul(decay, V::Load(q + d)));
    }
    RoundRow(s.near.row_k, s.keys + row * t.dk, t.dk);
    RoundRow(s.near.row_q, s.queries + row * t.dk, t.dk);
    Near::ScaleRow(t, row, own, k, q, s.near.row_k, s.near.row_q);
    RoundRow(s.near.row_k, s.score_keys + row * t.dk, t.dk);
    RoundRow(s.near.row_q, s.score_queries + row * t.dk, t.dk);
  }
  Near::ScaleKeys(t, own, 0, own, s.scaled);
  for (int row = 0; row < own; ++row) RoundRow(s.scaled + row * t.dk, s.rounded + row * t.dk, t.dk);
  for (int block = 0; block < own / kTileRows; ++block) {
    PackKeyTiles(t, s, s.rounded + block * kTileRows * t.dk, block);
  }
}

// S0^T k and S0^T q of the rows from `row` on; zero without a state.
void FromState(const DeltaTask& t, const Scratch& s, int row) {
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
  Multiply(p);
  if (t.add) return;
  p.a = s.keys + row * t.dk;
  p.c = from_k;
  Multiply(p);
}

// Products with the keys of the blocks before and, with a decay per head, of the own one.
void Scores(const DeltaTask& t, const Scratch& s, int row, int block) {
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
  Multiply(p);
  if (t.add) return;
  p.a = s.score_keys + row * t.dk;
  p.c = s.scores_k + row * kChunk;
  Multiply(p);
}

// Weights of one row on the 16 rows from j: a product with its decay, or what has it already. What
// stands above the diagonal is replaced, never multiplied, for its decay may have overflowed.
void Weights(const DeltaTask& t, const Scratch& s, int row, int block) {
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
void AddUpdates(const DeltaTask& t, const Scratch& s, const uint16_t* weights, float* c,
                int steps) {
  Multiply({.a = weights,
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

// u of one row over C vectors of columns: the rows of its block before it, one after the other.
template <int C>
void SolveColumns(const DeltaTask& t, const Scratch& s, int row, int64_t col) {
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

void Solve(const DeltaTask& t, const Scratch& s, int row) {
  int64_t col = 0;
  if (t.add) {
    const float* v = t.v + (row - t.row_begin) * t.token_stride;
    for (; col < t.dv; col += 16) V::Store(t.rows_u + row * t.dv + col, V::Load(v + col));
    return;
  }
  for (; col + 128 <= t.dv; col += 128) SolveColumns<8>(t, s, row, col);
  for (; col + 32 <= t.dv; col += 32) SolveColumns<2>(t, s, row, col);
  for (; col < t.dv; col += 16) SolveColumns<1>(t, s, row, col);
}

// The new rows of one block. A product also writes rows behind the last one, which are computed
// again when it is their turn.
void Block(const DeltaTask& t, const Scratch& s, int block) {
  const int own = block * kTileRows;
  const int begin = t.row_begin > own ? t.row_begin : own;
  const int end = t.row_end < own + kTileRows ? t.row_end : own + kTileRows;
  if (t.channel_decay) PackDecayedRows(t, s, begin, end);
  FromState(t, s, begin);
  Scores(t, s, begin, block);
  for (int row = begin; row < end; ++row) {
    Weights(t, s, row, block);
    if (t.channel_decay) continue;
    const __m512 decay = V::Set1(s.decay[row]);
    for (int64_t i = row * t.dv; i < (row + 1) * t.dv; i += 16) {
      V::Store(s.from_q + i, V::Mul(decay, V::Load(s.from_q + i)));
      if (!t.add) V::Store(s.from_k + i, V::Mul(decay, V::Load(s.from_k + i)));
    }
  }
  if (block > 0 && !t.add) {
    AddUpdates(t, s, s.weights_k + begin * kChunk, s.from_k + begin * t.dv, (block + 1) / 2);
  }
  for (int row = begin; row < end; ++row) Solve(t, s, row);
  PackUpdates(t, block, end, nullptr, s.updates);
  AddUpdates(t, s, s.weights_q + begin * kChunk, s.from_q + begin * t.dv, block / 2 + 1);
  for (int row = begin; row < end; ++row) {
    float* out = t.out + (row - t.row_begin) * t.out_stride;
    for (int64_t c = 0; c < t.dv; c += 16) V::Store(out + c, V::Load(s.from_q + row * t.dv + c));
  }
}

// Rows of keys as left operands of K^T u: tiles [dk / 16][2 steps][16 channels][32 rows].
void PackKeysAsColumns(const float* keys, int64_t dk, uint16_t* tiles) {
  for (int64_t d = 0; d < dk; d += 16) {
    for (int step = 0; step < kChunk / kTileDepth; ++step) {
      const float* k = keys + step * kTileDepth * dk + d;
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        r[i] = Interleave(V::Load(k + 2 * i * dk), V::Load(k + (2 * i + 1) * dk));
      }
      TransposePairs(r);
      uint16_t* out = tiles + d * kChunk + step * kTileElements;
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * 32, r[i]);
    }
  }
}

// S1 = exp(G_63) S0 + sum_j k_j (exp(G_63 - G_j) u_j)^T; with a decay per channel the keys have it.
void Finish(const DeltaTask& t, const Scratch& s) {
  uint16_t* columns = s.key_tiles;
  const float* last = t.rows_g + (kChunk - 1) * (t.channel_decay ? t.dk : 1);
  if (t.channel_decay) {
    Near::ScaleKeys(t, kChunk - 1, 0, kChunk, s.scaled);
    PackKeysAsColumns(s.scaled, t.dk, columns);
  } else {
    for (int j = 0; j < kChunk; j += 16) {
      V::Store(s.decay + j, V::Exp(V::Sub(V::Set1(*last), V::Load(t.rows_g + j))));
    }
    for (int block = 0; block < kBlocks; ++block) PackUpdates(t, block, kChunk, s.decay, s.updates);
    PackKeysAsColumns(t.rows_k, t.dk, columns);
  }
  for (int64_t d = 0; t.s0 && d < t.dk; ++d) {
    const __m512 decay = V::Exp(V::Set1(last[t.channel_decay ? d : 0]));
    for (int64_t i = d * t.dv; i < (d + 1) * t.dv; i += 16) {
      V::Store(t.s1 + i, V::Mul(decay, V::Load(t.s0 + i)));
    }
  }
  for (int64_t d = 0; d < t.dk; d += kTileRows) {
    Multiply({.a = columns + d * kChunk,
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

}  // namespace

void DeltaOnTiles(const DeltaTask& t) {
  const Scratch s = Split(t);
  const int new_rows = t.row_end - t.row_begin;
  ConfigureTiles(new_rows < kTileRows ? new_rows : kTileRows);
  AppendRows(t);
  if (!t.channel_decay) PackRows(t, s);
  if (t.s0) PackState(t, s.state);
  const int first = t.row_begin / kTileRows;
  // Steps of 32 rows read one block more than is solved, with weights of zero.
  for (int64_t i = 0; i < kChunk * t.dv; i += 32) _mm512_storeu_si512(s.updates + i, __m512i{});
  for (int block = 0; block * kTileRows < t.row_begin; ++block) {
    PackUpdates(t, block, t.row_begin, nullptr, s.updates);
  }
  for (int block = first; block * kTileRows < t.row_end; ++block) Block(t, s, block);
  if (t.s1 && t.row_end == kChunk) {
    ConfigureTiles(kTileRows);
    Finish(t, s);
  }
  _tile_release();
}

}  // namespace braid::cpu
