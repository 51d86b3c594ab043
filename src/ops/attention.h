// Paged causal attention with grouped heads. Keys are taken in partitions of kPartitionTokens at
// absolute positions, each with its own maximum, sum and output, merged in order of position; so a
// row's result does not depend on how many rows, threads or chunks there were.
//
// A layer's slice of a block: for each kv head, keys [kBlockTokens][head_dim], then values
// [kBlockTokens][out_dim], in `kv_dtype` (f32, bf16 or i8). A latent cache has one kv head and no
// values of their own: a token's value is the first value_dim channels of its key.
// i8: a row is integers q and one fp32 scale, x = q * scale, |q| <= 127, scale = max |x| / 127; the
// scales of the keys [kBlockTokens] and those of the values follow the rows of their kv head.
#pragma once

#include "ops/op.h"
#include "ops/sequence.h"
#include "tensor/dtype.h"

namespace braid::ops {

inline constexpr int32_t kPartitionTokens = 256;

struct AttentionShape {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // of queries and keys
  DType kv_dtype = DType::kF32;
  int32_t value_dim = 0;  // 0: head_dim
  bool latent = false;

  int64_t out_dim() const { return value_dim > 0 ? value_dim : head_dim; }
  // Channels from one value to the next.
  int64_t value_stride() const { return latent ? head_dim : out_dim(); }
  // Bytes of one kv head in a block: its keys, its values, neither with scales; all of it.
  int64_t keys_bytes() const { return int64_t{kBlockTokens} * head_dim * SizeOf(kv_dtype); }
  int64_t values_bytes() const {
    return latent ? 0 : int64_t{kBlockTokens} * out_dim() * SizeOf(kv_dtype);
  }
  int64_t head_bytes() const {
    const int64_t scales = kv_dtype == DType::kI8 ? kBlockTokens * 4 : 0;
    return keys_bytes() + values_bytes() + (latent ? 1 : 2) * scales;
  }
};

// Per head RMS norm with (weight_offset + weight), then rotation of the first 2 * rotary_pairs
// channels
// ("NeoX" pairing: channel j with channel j + rotary_pairs), then keys and values go to their
// pages. Angles are position * inverse_frequency in fp32; cos and sin are scaled by rotary_scale.
struct WriteKvArgs {
  AttentionShape shape;
  SequenceIndex sequences;
  CacheSlice cache;
  Matrix q;                       // [tokens, heads * q_stride]; head h at column h * q_stride
  int64_t q_stride = 0;           // head_dim, or 2 * head_dim when a gate lies behind each query
  Matrix k;                       // [tokens, kv_heads * head_dim]
  Matrix v;                       // [tokens, kv_heads * out_dim]
  const float* q_norm = nullptr;  // [head_dim] or null: no norm
  const float* k_norm = nullptr;
  float norm_offset = 0.0f;
  float eps = 1e-6f;
  const float* inverse_frequency = nullptr;  // [rotary_pairs]
  int32_t rotary_pairs = 0;
  float rotary_scale = 1.0f;
  Matrix q_out;  // [tokens, heads * head_dim]
};
void NormRopeWriteKv(const OpContext& context, const WriteKvArgs& args);

struct AttentionArgs {
  AttentionShape shape;
  SequenceIndex sequences;
  CacheSlice cache;
  Matrix q;  // [tokens, heads * head_dim]
  float scale = 1.0f;
  // Empty or columns of a projection, head h's at h * gate_stride: out *= sigmoid(gate).
  Matrix gate;
  int64_t gate_stride = 0;
  bool gate_per_head = false;  // one number for all channels of a head, else one for each
  Matrix out;                  // [tokens, heads * out_dim]
};
void Attention(const OpContext& context, const AttentionArgs& args);

}  // namespace braid::ops
