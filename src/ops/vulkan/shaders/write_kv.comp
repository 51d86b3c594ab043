// Norm and rotation of a head of queries or keys, and the way of keys and values into their pages
// (ops/attention.h). Workgroups: heads + 2 kv_heads, tokens.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "batch.glsl"
#include "pages.glsl"
#include "channels.glsl"
layout(push_constant) uniform Arguments {
  uint64_t batch, q, k, v, q_norm, k_norm, frequency, q_out;
  uint64_t slice;      // bytes of the layer's slice in a block
  int first_token_heads;  // heads | kv_heads << 16
  int first_token;
  int dims;               // head_dim | value_dim << 16
  int q_stride;           // of heads
  int strides_q, strides_k, strides_v, strides_out;
  int pairs_group;        // rotary pairs | interleaved << 15 | cache group << 16
  float norm_offset, eps, rotary_scale;
} a;

void NormAndRotate(uint64_t norm, int dim, int position) {
  if (norm != 0) NormChannels(norm, dim, a.norm_offset, a.eps);
  const int pairs = a.pairs_group & 0x7fff;
  const bool interleaved = (a.pairs_group & 0x8000) != 0;
  RotateChannels(0, pairs, interleaved, a.frequency, position, a.rotary_scale);
}

void main() {
  const int me = int(gl_LocalInvocationID.x), part = int(gl_WorkGroupID.x);
  const int token = a.first_token + int(gl_WorkGroupID.y);
  const int heads = a.first_token_heads & 0xffff, kv_heads = a.first_token_heads >> 16;
  const int dim = a.dims & 0xffff, value_dim = a.dims >> 16;
  Batch batch = Batch(a.batch);
  const Span span = SpanOfToken(batch, token);
  const int position = span.start + token - span.token_begin;
  const int slot = position % kBlockTokens;
  if (part < heads) {
    Floats q = RowOf(a.q, token, a.strides_q);
    for (int c = me; c < dim; c += THREADS) channels[c] = q.at[part * a.q_stride + c];
    barrier();
    NormAndRotate(a.q_norm, dim, position);
    Floats result = RowOf(a.q_out, token, a.strides_out);
    for (int c = me; c < dim; c += THREADS) result.at[part * dim + c] = channels[c];
    return;
  }
  const bool is_key = part < heads + kv_heads;
  const int head = part - heads - (is_key ? 0 : kv_heads);
  const uint64_t scale_bytes = CACHE == kCacheI8 ? uint64_t(kBlockTokens * 4) : 0ul;
  const uint64_t keys_bytes = uint64_t(kBlockTokens) * RowBytes(dim);
  const uint64_t values_bytes = uint64_t(kBlockTokens) * RowBytes(value_dim);
  const uint64_t page = BlockOf(batch, span, a.pairs_group >> 16, position / kBlockTokens) + a.slice +
                        uint64_t(head) * (keys_bytes + values_bytes + 2ul * scale_bytes);
  const uint64_t scales = page + keys_bytes + values_bytes;
  if (is_key) {
    Floats k = RowOf(a.k, token, a.strides_k);
    for (int c = me; c < dim; c += THREADS) channels[c] = k.at[head * dim + c];
    barrier();
    NormAndRotate(a.k_norm, dim, position);
    StoreChannels(page, scales, slot, dim);
  } else {
    Floats v = RowOf(a.v, token, a.strides_v);
    for (int c = me; c < value_dim; c += THREADS) channels[c] = v.at[head * value_dim + c];
    barrier();
    StoreChannels(page + keys_bytes, scales + scale_bytes, slot, value_dim);
  }
}
