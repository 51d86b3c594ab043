// Norm and rotation of a head of queries or keys, and the way of keys and values into their pages
// (ops/attention.h). Workgroups: heads + 2 kv_heads, tokens.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "batch.glsl"
#include "pages.glsl"
#include "angle.glsl"
layout(push_constant) uniform Arguments {
  uint64_t batch, q, k, v, q_norm, k_norm, frequency, q_out;
  uint64_t slice;      // bytes of the layer's slice in a block
  int first_token_heads;  // heads | kv_heads << 16
  int first_token;
  int dims;               // head_dim | value_dim << 16
  int q_stride;           // of heads
  int strides_q, strides_k, strides_v, strides_out;
  int pairs_group;        // rotary pairs | cache group << 16
  float norm_offset, eps, rotary_scale;
} a;

const int kDimMax = 576;
shared float channels[kDimMax];

void NormAndRotate(uint64_t norm, int dim, int position) {
  const int me = int(gl_LocalInvocationID.x), pairs = a.pairs_group & 0xffff;
  if (norm != 0) {
    float squares = 0.0;
    for (int c = me; c < dim; c += THREADS) squares = fma(channels[c], channels[c], squares);
    const float scale = 1.0 / sqrt(SumOfAll(squares) / float(dim) + a.eps);
    for (int c = me; c < dim; c += THREADS) {
      channels[c] = channels[c] * scale * (a.norm_offset + Floats(norm).at[c]);
    }
    barrier();
  }
  for (int j = me; j < pairs; j += THREADS) {
    const vec2 turn = CosSin(float(position) * Floats(a.frequency).at[j]) * a.rotary_scale;
    const float first = channels[j], second = channels[j + pairs];
    channels[j] = first * turn.x - second * turn.y;
    channels[j + pairs] = second * turn.x + first * turn.y;
  }
  barrier();
}

void Store(uint64_t rows, uint64_t scales, int slot, int dim) {
  const int me = int(gl_LocalInvocationID.x);
  const uint64_t row = rows + uint64_t(slot) * RowBytes(dim);
  if (CACHE == kCacheF32) {
    for (int c = me; c < dim; c += THREADS) Floats(row).at[c] = channels[c];
  } else if (CACHE == kCacheBf16) {
    for (int w = me; w < dim / 2; w += THREADS) {
      Words(row).at[w] = Bf16Of(channels[2 * w]) | Bf16Of(channels[2 * w + 1]) << 16;
    }
  } else {
    float most = 0.0, bad = 0.0;
    for (int c = me; c < dim; c += THREADS) {
      const float value = abs(channels[c]);
      if (!(value < uintBitsToFloat(0x7f800000u))) bad = 1.0;
      most = max(most, value);
    }
    most = MaxOfAll(most);
    const bool not_finite = MaxOfAll(bad) > 0.0;
    const bool some = !not_finite && most >= uintBitsToFloat(0x0d800000u);  // 2^-100
    const float factor = some ? 127.0 / most : 0.0;
    for (int w = me; w < dim / 4; w += THREADS) {
      uint word = 0;
      for (int j = 0; some && j < 4; ++j) {
        word |= (uint(int(roundEven(channels[4 * w + j] * factor))) & 255u) << (8 * j);
      }
      Words(row).at[w] = word;
    }
    if (me == 0) {
      Floats(scales).at[slot] =
          not_finite ? uintBitsToFloat(0x7fc00000u) : some ? most / 127.0 : 0.0;
    }
  }
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
    Store(page, scales, slot, dim);
  } else {
    Floats v = RowOf(a.v, token, a.strides_v);
    for (int c = me; c < value_dim; c += THREADS) channels[c] = v.at[head * value_dim + c];
    barrier();
    Store(page + keys_bytes, scales + scale_bytes, slot, value_dim);
  }
}
