// Depthwise causal convolution, then SiLU. Workgroups: channels / 64, tokens; of spans with few
// tokens: channels / 64, spans, and an invocation keeps its channel's inputs for the next step when
// it has read those of the last.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "conv.glsl"

void Convolve(Batch batch, Span span, int token, int c) {
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

void main() {
  const int c = int(gl_GlobalInvocationID.x);
  if (c >= a.channels) return;
  Batch batch = Batch(a.batch);
  if (a.few != 0) {
    const Span span = Spans(batch.spans).at[a.first + int(gl_WorkGroupID.y)];
    for (int i = 0; i < span.token_count; ++i) Convolve(batch, span, span.token_begin + i, c);
    KeepInputs(batch, span, c, true);
    KeepInputs(batch, span, c, false);
    return;
  }
  const int token = a.first + int(gl_WorkGroupID.y);
  Convolve(batch, SpanOfToken(batch, token), token, c);
}
