// Depthwise causal convolution, then SiLU. Workgroups: channels / 64, tokens.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "state.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform Arguments {
  uint64_t batch, x, weight, out_;
  uint64_t window;  // bytes of the windows in a block
  int first_token, channels, x_stride, out_stride, group, window_rows;
} a;

void main() {
  const int c = int(gl_GlobalInvocationID.x);
  const int token = a.first_token + int(gl_WorkGroupID.y);
  if (c >= a.channels) return;
  Batch batch = Batch(a.batch);
  const Span span = SpanOfToken(batch, token);
  const int position = span.start + token - span.token_begin;
  float sum = 0.0;
  for (int j = 0; j < int(CONV_WIDTH); ++j) {
    const int from = position - int(CONV_WIDTH) + 1 + j;
    float value = 0.0;
    if (from >= span.start) {
      value = RowOf(a.x, span.token_begin + from - span.start, a.x_stride).at[c];
    } else if (from >= 0) {
      const uint64_t rows = SliceOf(batch, span, a.group, a.window, from / kBlockTokens);
      value = RowOf(rows, from % a.window_rows, a.channels).at[c];
    }
    sum = fma(Floats(a.weight).at[j * a.channels + c], value, sum);
  }
  RowOf(a.out_, token, a.out_stride).at[c] = Silu(sum);
}
