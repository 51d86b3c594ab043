// The one recurrence of all linear mixers: S <- decay(S); u = beta (v - S^T k) or v; S <- S + k
// u^T; o = S^T q (arXiv 2412.06464, gated delta networks; arXiv 2510.26692, whose decay is a
// number per key channel; Lightning attention, whose decay is a constant and whose u is v).
//
// Evaluated in chunks of kBlockTokens at absolute positions. Row t of a chunk is computed from the
// state S0 at the chunk's start and the rows (k, u, G) before it, in one order, so prefill, decode
// and verify are one function and a rejected draft is a shorter list of rows.
//
// S, k and u are kept in `state_dtype`. What is rounded is rounded where it is computed, before it
// is used, whether or not a page stands for it: a row of u and of k at its position, S at the end
// of its chunk. So rounding, too, depends on positions alone.
//
// A layer's slice of a state block, H = value heads:
//   per head: max(dk * dv, 64 * (dk + dv)) numbers of state_dtype: S[dk][dv] once the chunk is
//             complete, until then the rows k[64][dk], u[64][dv] of the chunk in progress; of int8,
//             then max(dk, 128) scales: of the rows of S, or of k and u;
//   then G[H][64], or [H][64][dk] for a decay per channel: inclusive prefix sums of the log decay
//             of the rows in progress, fp32;
//   then the convolution's last inputs of the chunk [window_rows][channels], fp32: the one at
//   position p
//             is row p % window_rows, so that a step writes one row per token and moves none. After
//             drafts are rejected, the next row still finds the width - 1 inputs before it.
#pragma once

#include <algorithm>

#include "base/math.h"
#include "ops/norm.h"
#include "ops/op.h"
#include "ops/sequence.h"
#include "tensor/dtype.h"

namespace braid::ops {

struct LinearAttentionShape {
  int32_t key_heads = 0;
  int32_t value_heads = 0;  // a multiple of key_heads; value head h reads key head h / (ratio)
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t conv_width = 0;      // 1: no convolution
  bool channel_decay = false;  // a decay per key channel instead of one per head
  int32_t drafts_max = 0;      // the most draft tokens of a row
  // kF32, kBF16, or kI8: integers times a power of two per row, so that rounding a rounded row
  // changes nothing and its numbers are exact in bf16.
  DType state_dtype = DType::kF32;

  int64_t conv_channels() const {
    return 2 * int64_t{key_heads} * key_dim + int64_t{value_heads} * value_dim;
  }
  // Numbers of one head's area; its bytes, scales included; and where the parts behind the heads
  // begin within a slice, in bytes.
  int64_t head_numbers() const {
    return std::max(int64_t{key_dim} * value_dim, kBlockTokens * int64_t{key_dim + value_dim});
  }
  int64_t scales_offset() const { return RoundUp(head_numbers() * SizeOf(state_dtype), 4); }
  int64_t head_bytes() const {
    const int64_t scales = state_dtype == DType::kI8 ? std::max(key_dim, 2 * kBlockTokens) : 0;
    return scales_offset() + 4 * scales;
  }
  int64_t decay_offset() const { return value_heads * head_bytes(); }
  int64_t decay_width() const { return channel_decay ? key_dim : 1; }
  int64_t window_offset() const {
    return decay_offset() + 4 * value_heads * kBlockTokens * decay_width();
  }
  int64_t window_rows() const { return conv_width > 1 ? conv_width - 1 + drafts_max : 0; }
};

// Bytes of a layer's slice of a state block, a multiple of 64.
int64_t StateBlockBytes(const LinearAttentionShape& shape);

// Depthwise causal convolution over channels [q | k | v], then SiLU. Inputs before the span are
// read from the state pages of their chunks; the span's last ones are written there, and those
// before the last block boundary inside.
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

// The log decay g <= 0 of a head (or of a channel of a head) at a token.
enum class DecayForm : uint8_t {
  kSoftplus,  // -exp(a_log) softplus(a + dt_bias)
  kBounded,   // lower_bound sigmoid(exp(a_log) (a + dt_bias))
  kConstant,  // constant[head], whatever the token
};

struct LinearAttentionRule {
  DecayForm decay = DecayForm::kSoftplus;
  float lower_bound = 0.0f;  // kBounded: negative
  // u = v, and k and q are taken as they are: no update gate, nothing is erased.
  bool add = false;
};

struct LinearAttentionArgs {
  LinearAttentionShape shape;
  SequenceIndex sequences;
  CacheSlice cache;
  LinearAttentionRule rule;
  Matrix qkv;  // [tokens, conv_channels], overwritten: q and k become unit vectors, q is scaled
  Matrix a;    // [tokens, value_heads * decay_width]: raw decay gates; kConstant: empty
  Matrix b;    // [tokens, value_heads]: raw update gates; add: empty
  const float* a_log = nullptr;     // [value_heads]
  const float* dt_bias = nullptr;   // [value_heads * decay_width]
  const float* constant = nullptr;  // kConstant: [value_heads] log decays
  Matrix out;                       // [tokens, value_heads * value_dim]
};
void LinearAttentionStep(const OpContext& context, const LinearAttentionArgs& args);

}  // namespace braid::ops
