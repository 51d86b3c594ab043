// The one recurrence of all linear mixers: S <- decay(S); u = beta (v - S^T k) or v; S <- S + k
// u^T; o = S^T q (Yang et al. 2024, gated delta networks; design record "state pages").
//
// Evaluated in chunks of kBlockTokens at absolute positions. Row t of a chunk is computed from the
// state S0 at the chunk's start and the rows (k, u, G) before it, in one order, so prefill, decode
// and verify are one function and a rejected draft is a shorter list of rows.
//
// A layer's slice of a state block (all fp32), H = value heads:
//   per head: max(dk * dv, 64 * (dk + dv)) floats: S[dk][dv] once the chunk is complete, until then
//   the
//             rows k[64][dk], u[64][dv] of the chunk in progress;
//   then G[H][64]: inclusive prefix sums of the log decay of the rows in progress;
//   then the convolution's last (width - 1) input rows [width - 1][channels], oldest first.
#pragma once

#include <algorithm>

#include "ops/norm.h"
#include "ops/op.h"
#include "ops/sequence.h"

namespace braid::ops {

struct LinearAttentionShape {
  int32_t key_heads = 0;
  int32_t value_heads = 0;  // a multiple of key_heads; value head h reads key head h / (ratio)
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t conv_width = 0;

  int64_t conv_channels() const {
    return 2 * int64_t{key_heads} * key_dim + int64_t{value_heads} * value_dim;
  }
  // Floats of one head's area, and where the parts behind the heads begin, within a slice.
  int64_t head_floats() const {
    return std::max(int64_t{key_dim} * value_dim, kBlockTokens * int64_t{key_dim + value_dim});
  }
  int64_t decay_offset() const { return value_heads * head_floats(); }
  int64_t window_offset() const { return decay_offset() + int64_t{value_heads} * kBlockTokens; }
};

// Bytes of a layer's slice of a state block, a multiple of 64.
int64_t StateBlockBytes(const LinearAttentionShape& shape);

// Depthwise causal convolution over channels [q | k | v], then SiLU. The window before the span is
// read from, and the window after it written to, the state pages; also at the last block boundary
// inside.
struct ConvArgs {
  LinearAttentionShape shape;
  SequenceIndex sequences;
  CacheSlice cache;
  Matrix x;                       // [tokens, conv_channels] raw projections
  const float* weight = nullptr;  // [conv_width][conv_channels], oldest tap first
  Matrix out;                     // [tokens, conv_channels]
  const float* zeros =
      nullptr;  // set by candidates: [conv_channels] zeros before a sequence's start
};
void CausalConv(const OpContext& context, const ConvArgs& args);

struct LinearAttentionArgs {
  LinearAttentionShape shape;
  SequenceIndex sequences;
  CacheSlice cache;
  Matrix qkv;   // [tokens, conv_channels], overwritten: q and k become unit vectors
  Matrix a, b;  // [tokens, value_heads]: raw decay and update gates
  const float* a_log = nullptr;    // [value_heads]
  const float* dt_bias = nullptr;  // [value_heads]
  Matrix out;                      // [tokens, value_heads * value_dim]
};
void LinearAttentionStep(const OpContext& context, const LinearAttentionArgs& args);

}  // namespace braid::ops
