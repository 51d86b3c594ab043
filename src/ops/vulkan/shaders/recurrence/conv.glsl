// What the kernels of the convolution share. In a page stand the last inputs of its chunk, in turn.
#include "state.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform Arguments {
  uint64_t batch, x, weight, out_;
  uint64_t window;  // bytes of the windows in a block
  int first, channels, x_stride, out_stride, group, window_rows;
  int few;  // the first is a span, whose tokens and windows one workgroup does
} a;

// The last inputs of a span go into the window of its last token's page or, `completed`, of the
// last page before that which it completes.
void KeepInputs(Batch batch, Span span, int c, bool completed) {
  const int end = span.start + span.token_count;
  const int boundary = end / kBlockTokens * kBlockTokens;
  if (completed && (boundary <= span.start || boundary == end)) return;
  const int chunk_end = completed ? boundary : end;
  const int chunk = (chunk_end - 1) / kBlockTokens;
  const uint64_t rows = SliceOf(batch, span, a.group, a.window, chunk);
  const int first = max(max(span.start, chunk * kBlockTokens), chunk_end - a.window_rows);
  for (int p = first; p < chunk_end; ++p) {
    RowOf(rows, p % a.window_rows, a.channels).at[c] =
        RowOf(a.x, span.token_begin + p - span.start, a.x_stride).at[c];
  }
}
