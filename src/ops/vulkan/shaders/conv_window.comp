// The last inputs of every span go into the windows of its last token's page and of the last page
// that it completes. Workgroups: channels / 64, spans, 2.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "state.glsl"
layout(local_size_x = 64) in;
layout(push_constant) uniform Arguments {
  uint64_t batch, x, weight, out_;
  uint64_t window;
  int first_span, channels, x_stride, out_stride, group, window_rows;
} a;

void main() {
  const int c = int(gl_GlobalInvocationID.x);
  if (c >= a.channels) return;
  Batch batch = Batch(a.batch);
  const Span span = Spans(batch.spans).at[a.first_span + int(gl_WorkGroupID.y)];
  const int end = span.start + span.token_count;
  const int boundary = end / kBlockTokens * kBlockTokens;
  const bool completed = gl_WorkGroupID.z == 1;
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
