// The gated delta rule over rows of one chunk with its products on tile registers: operands rounded
// to bf16, sums, state, decays and the triangular solve inside 16 rows in fp32. The formulas are
// those of kernels/delta.h with a decay per head. Rows are solved in blocks of 16 at absolute
// positions, and a row takes the same steps of 32 terms whichever other rows are new, so its bits
// are the same in prefill and in decode.
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

struct Scratch {
  float* from_k;        // [kRows][dv] S0^T k of the new rows, then what the memory holds for them
  float* from_q;        // [kRows][dv] the same of q, then the output
  float* scores_k;      // [kRows][64] k . k_j
  float* scores_q;      // [kRows][64] q . k_j
  float* inside;        // [64][16] decayed weights on the rows of the own block
  float* decay;         // [64]
  uint16_t* state;      // tiles of S0
  uint16_t* keys;       // [kRows][dk]
  uint16_t* queries;    // [kRows][dk]
  uint16_t* key_tiles;  // k as right operands, one column of tiles per block
  uint16_t* updates;    // tiles of u
  uint16_t* weights_k;  // [kRows][64] decayed weights on rows of the blocks before
  uint16_t* weights_q;  // [kRows][64] decayed weights on all rows up to the own
};

Scratch Split(const DeltaTask& t) {
  Scratch s;
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
  s.keys = take_bf16(kRows * t.dk);
  s.queries = take_bf16(kRows * t.dk);
  s.key_tiles = take_bf16(kChunk * t.dk);
  s.updates = take_bf16(kChunk * t.dv);
  s.weights_k = take_bf16(kRows * kChunk);
  s.weights_q = take_bf16(kRows * kChunk);
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

void PackRows(const DeltaTask& t, const Scratch& s) {
  for (int row = t.row_begin; row < t.row_end; ++row) {
    const int64_t i = row - t.row_begin;
    const float* k = t.k + i * t.token_stride;
    for (int64_t d = 0; d < t.dk; d += 16) V::Store(t.rows_k + row * t.dk + d, V::Load(k + d));
    RoundRow(t.q + i * t.token_stride, s.queries + row * t.dk, t.dk);
    t.rows_g[row] = (row > 0 ? t.rows_g[row - 1] : 0.0f) + t.log_decay[i * t.decay_stride];
  }
  const int steps = static_cast<int>(t.dk / kTileDepth);
  for (int row = 0; row < t.row_end; ++row) {
    RoundRow(t.rows_k + row * t.dk, s.keys + row * t.dk, t.dk);
  }
  for (int block = 0; block * kTileRows < t.row_end; ++block) {
    PackRowsAsOutputs(s.keys + block * kTileRows * t.dk, t.dk, steps,
                      s.key_tiles + block * kTileRows * t.dk);
  }
  for (int row = t.row_begin & ~15; row < t.row_end; row += 16) {
    V::Store(s.decay + row, V::Exp(V::Load(t.rows_g + row)));
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

void Scores(const DeltaTask& t, const Scratch& s, int row, int block) {
  TileProduct p{.a = s.queries + row * t.dk,
                .a_row = t.dk,
                .a_step = kTileDepth,
                .b = s.key_tiles,
                .b_column = kTileRows * t.dk,
                .c = s.scores_q + row * kChunk,
                .c_row = kChunk,
                .steps = static_cast<int>(t.dk / kTileDepth),
                .columns = block + 1,
                .add = false};
  Multiply(p);
  if (t.add) return;
  p.a = s.keys + row * t.dk;
  p.c = s.scores_k + row * kChunk;
  Multiply(p);
}

// Scores times decays: on earlier blocks and on the own one. What stands above the diagonal is
// replaced, never multiplied, for its decay may have overflowed.
void Weights(const DeltaTask& t, const Scratch& s, int row, int block) {
  const __m512 g = V::Set1(t.rows_g[row]);
  const int own = block * kTileRows;
  for (int j = 0; j <= own; j += kTileRows) {
    const __m512 decay = V::Exp(V::Sub(g, V::Load(t.rows_g + j)));
    const int64_t at = row * kChunk + j;
    const __mmask16 before =
        j < own ? __mmask16{0xffff} : static_cast<__mmask16>((1u << (row - own)) - 1);
    const __mmask16 upto = static_cast<__mmask16>(2u * before + 1u);
    const __m512 w_q = _mm512_maskz_mul_ps(upto, V::Load(s.scores_q + at), decay);
    const __m512 w_k = _mm512_maskz_mul_ps(before, V::Load(s.scores_k + at), decay);
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
  FromState(t, s, begin);
  Scores(t, s, begin, block);
  for (int row = begin; row < end; ++row) {
    Weights(t, s, row, block);
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
void PackKeysAsColumns(const DeltaTask& t, uint16_t* tiles) {
  for (int64_t d = 0; d < t.dk; d += 16) {
    for (int step = 0; step < kChunk / kTileDepth; ++step) {
      const float* k = t.rows_k + step * kTileDepth * t.dk + d;
      __m512i r[16];
      for (int i = 0; i < 16; ++i) {
        r[i] = Interleave(V::Load(k + 2 * i * t.dk), V::Load(k + (2 * i + 1) * t.dk));
      }
      TransposePairs(r);
      uint16_t* out = tiles + d * kChunk + step * kTileElements;
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * 32, r[i]);
    }
  }
}

// S1 = exp(G_63) S0 + sum_j k_j (exp(G_63 - G_j) u_j)^T.
void Finish(const DeltaTask& t, const Scratch& s) {
  const __m512 last = V::Set1(t.rows_g[kChunk - 1]);
  for (int j = 0; j < kChunk; j += 16) {
    V::Store(s.decay + j, V::Exp(V::Sub(last, V::Load(t.rows_g + j))));
  }
  for (int block = 0; block < kBlocks; ++block) PackUpdates(t, block, kChunk, s.decay, s.updates);
  uint16_t* columns = s.key_tiles;
  PackKeysAsColumns(t, columns);
  const __m512 decay = V::Exp(last);
  for (int64_t i = 0; t.s0 && i < t.dk * t.dv; i += 16) {
    V::Store(t.s1 + i, V::Mul(decay, V::Load(t.s0 + i)));
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
  PackRows(t, s);
  if (t.s0) PackState(t, s.state);
  const int first = t.row_begin / kTileRows;
  for (int block = 0; block < kBlocks; ++block) {
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
