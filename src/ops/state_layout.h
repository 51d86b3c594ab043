// Where things lie in a state block, and which block a step reads and writes: the address
// arithmetic that the reference and every fast candidate share (ops/linear_attention.h has the
// layout).
#pragma once

#include "ops/linear_attention.h"

namespace braid::ops {

// One head's part of one chunk's page. `state` and `rows_k` are the same memory: a page holds the
// rows of the chunk in progress or, once complete, the state at its end. All null where the table
// has a hole.
struct StatePage {
  CachedRows state;         // [key_dim][value_dim]
  CachedRows rows_k;        // [64][key_dim]
  CachedRows rows_u;        // [64][value_dim]
  float* rows_g = nullptr;  // [64][decay_width]
};
StatePage PageOf(const LinearAttentionShape& shape, const CacheSlice& cache,
                 const SequenceSpan& span, int64_t chunk, int64_t head);

// The state at the start of the chunk of the span's first token; null before the first chunk's end.
CachedRows StateBefore(const LinearAttentionArgs& args, const SequenceSpan& span, int64_t head);

// The convolution's inputs for `count` tokens of the span from i on, oldest first: rows of x, of
// the page's window, zeros; conv_width - 1 + count of them.
void ConvInputs(const ConvArgs& args, const SequenceSpan& span, int64_t i, int32_t count,
                const float** inputs);

// Writes the span's last inputs into the windows of its last token's page and of the last page that
// it completes. They replace inputs before the span, so it runs after all outputs are computed.
void WriteConvWindows(const ConvArgs& args, const SequenceSpan& span);

// The gates, one function for prefill, decode and every candidate (fp32):
// the log decay of LinearAttentionRule, beta = sigmoid(b), q scaled by key_dim^-1/2.
float LogDecay(const LinearAttentionRule& rule, float a, float a_log, float dt_bias);
float UpdateGate(float b);
float QueryScale(const LinearAttentionShape& shape);
// Of one head at one token: out[decay_width].
void LogDecays(const LinearAttentionArgs& args, int64_t token, int64_t head, float* out);

}  // namespace braid::ops
