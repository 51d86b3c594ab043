// A token's row of a latent cache: the norm of its latent part, the rotation of the key behind it;
// and the rotation of the same channels of every query (ops/latent.h). Workgroups: heads, and one
// more where there is a row; tokens.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "batch.glsl"
#include "pages.glsl"
#include "channels.glsl"
layout(push_constant) uniform Arguments {
  uint64_t batch, q, q_out, row, norm, frequency;
  uint64_t slice;  // bytes of the layer's slice in a block
  int heads, first_token;
  int dims;     // of a row | of its latent part << 16
  int q_width, out_width;  // of a head
  int q_stride, out_stride, row_stride;
  int pairs_group;  // rotary pairs | interleaved << 15 | cache group << 16
  float eps, rotary_scale;
} a;

void main() {
  const int me = int(gl_LocalInvocationID.x), part = int(gl_WorkGroupID.x);
  const int token = a.first_token + int(gl_WorkGroupID.y);
  const int width = a.dims & 0xffff, latent = a.dims >> 16, key = width - latent;
  const int pairs = a.pairs_group & 0x7fff;
  const bool interleaved = (a.pairs_group & 0x8000) != 0;
  Batch batch = Batch(a.batch);
  const Span span = SpanOfToken(batch, token);
  const int position = span.start + token - span.token_begin;
  if (part < a.heads) {
    Floats q = RowOf(a.q, token, a.q_stride), result = RowOf(a.q_out, token, a.out_stride);
    const int from = (part + 1) * a.q_width - key, to = (part + 1) * a.out_width - key;
    for (int c = me; c < key; c += THREADS) channels[c] = q.at[from + c];
    barrier();
    RotateChannels(0, pairs, interleaved, a.frequency, position, a.rotary_scale);
    for (int c = me; c < key; c += THREADS) result.at[to + c] = channels[c];
    return;
  }
  Floats row = RowOf(a.row, token, a.row_stride);
  for (int c = me; c < width; c += THREADS) channels[c] = row.at[c];
  barrier();
  NormChannels(a.norm, latent, 0.0, a.eps);
  RotateChannels(latent, pairs, interleaved, a.frequency, position, a.rotary_scale);
  const uint64_t page = BlockOf(batch, span, a.pairs_group >> 16, position / kBlockTokens) + a.slice;
  StoreChannels(page, page + uint64_t(kBlockTokens) * RowBytes(width), position % kBlockTokens,
                width);
}
