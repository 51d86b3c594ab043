// What latent attention needs around ops/attention.h (arXiv 2405.04434): the cache row of a token;
// products with a matrix per head, for the absorbed form; keys and values of heads made from cache
// rows, for the expanded form.
#pragma once

#include "ops/attention.h"
#include "ops/packed.h"
#include "ops/rotary.h"

namespace braid::ops {

// A token's cache row is [latent | key]: the latent part after an RMS norm, the shared key rotated.
// The rotated channels are the last ones of each head, equally many in q and in q_out.
struct WriteLatentArgs {
  AttentionShape shape;  // latent
  SequenceIndex sequences;
  CacheSlice cache;
  Matrix row;  // [tokens, head_dim] latent and shared key, raw; overwritten. Empty: only queries
  const float* norm = nullptr;  // [value_dim]
  float eps = 1e-6f;
  Rotation rotation;  // of the last head_dim - value_dim channels
  Matrix q;           // [tokens, heads of equal width]
  Matrix q_out;       // the same, of another width or q itself; only rotated channels are written
};
void WriteLatent(const OpContext& context, const WriteLatentArgs& args);

// For every matrix i of w: columns [i * y_step, + n) of y = W_i x[:, i * x_step, + k), times
// sigmoid(gate[:, i]) when there is a gate. An output adds its k terms in ascending order.
struct HeadLinearArgs {
  Matrix x;  // [rows, >= count * x_step]
  int64_t x_step = 0;
  const PackedMatrix* w = nullptr;  // count matrices [n, k]
  Matrix gate;                      // [rows, count] or empty
  Matrix y;                         // [rows, >= count * y_step]
  int64_t y_step = 0;
};
void HeadLinear(const OpContext& context, const HeadLinearArgs& args);

// Keys and values of some heads, for positions 0 to the end of a span whose rows are in the cache.
// Head i's key is [K_i latent | shared key], its value V_i latent. They are stored as `heads`
// describes; blocks[b] is the block of positions 64 b, ….
struct ExpandLatentArgs {
  AttentionShape shape;  // latent
  const SequenceSpan* span = nullptr;
  CacheSlice cache;
  const PackedMatrix* keys = nullptr;    // a matrix [key dim, latent dim] per head
  const PackedMatrix* values = nullptr;  // a matrix [value dim, latent dim] per head
  AttentionShape heads;                  // of what is written, a kv head per head
  std::byte* const* blocks = nullptr;
};
void ExpandLatent(const OpContext& context, const ExpandLatentArgs& args);

}  // namespace braid::ops
