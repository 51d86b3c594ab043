// What latent attention needs around ops/attention.h (arXiv 2405.04434; absorbed form): the cache
// row of a token, and products with a matrix per head.
#pragma once

#include "ops/attention.h"
#include "ops/packed.h"
#include "ops/rotary.h"

namespace braid::ops {

// A token's cache row is [latent | key]: the latent part after an RMS norm, the shared key rotated.
// The rotated part of every query goes to its place in q_out behind value_dim latent channels.
struct WriteLatentArgs {
  AttentionShape shape;  // latent()
  SequenceIndex sequences;
  CacheSlice cache;
  Matrix row;  // [tokens, head_dim] latent and shared key, raw; overwritten. Empty: only queries
  const float* norm = nullptr;  // [value_dim]
  float eps = 1e-6f;
  Rotation rotation;     // of the last head_dim - value_dim channels
  Matrix q;              // [tokens, heads * q_stride]
  int64_t q_stride = 0;  // head h's part to rotate stands at column h * q_stride + q_offset
  int64_t q_offset = 0;
  Matrix q_out;  // [tokens, heads * head_dim]
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

}  // namespace braid::ops
