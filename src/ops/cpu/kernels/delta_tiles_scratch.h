// How TiledDelta divides DeltaTask::scratch.
#pragma once

#include "ops/cpu/kernels/table.h"
#include "ops/cpu/kernels/tiles.h"

namespace braid::ops::cpu {

// `Near` is the Delta of the same file.
template <class Near>
struct TiledDeltaScratch {
  static constexpr int kChunk = 64;
  // A tile may begin at any row and reads 16.
  static constexpr int kRows = kChunk + kTileRows;

  float* from_k;      // [kRows][dv] S0^T k of the new rows, then the recalled values
  float* from_q;      // [kRows][dv] the same of q, then the output
  float* scores_k;    // [kRows][64] k . k_j; with a decay per channel decayed, of earlier blocks
  float* scores_q;    // [kRows][64] q . k_j
  float* inside;      // [64][16] decayed weights on the rows of the own block
  float* decay;       // [64]
  float* scaled;      // [64][dk] keys times a decay per channel
  uint16_t* rounded;  // [64][dk] the same
  float* weights[2];  // [16] weights of k and q with a decay per channel on the own block
  typename Near::Scratch near;
  uint16_t* state;          // tiles of S0
  uint16_t* keys;           // [kRows][dk] left operands of products with S0
  uint16_t* queries;        // [kRows][dk]
  uint16_t* score_keys;     // [kRows][dk] left operands of products with keys
  uint16_t* score_queries;  // [kRows][dk]
  uint16_t* key_tiles;      // keys as right operands, one column of tiles per block
  uint16_t* updates;        // tiles of u
  uint16_t* weights_k;      // [kRows][64] decayed weights on rows of the blocks before
  uint16_t* weights_q;      // [kRows][64] decayed weights on all rows up to the own

  static TiledDeltaScratch Split(const DeltaTask& t) {
    TiledDeltaScratch s = {};
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
};

}  // namespace braid::ops::cpu
