// The last inputs of every span go into the windows of its last token's page and of the last page
// that it completes. Workgroups: channels / 64, spans, 2.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "conv.glsl"

void main() {
  const int c = int(gl_GlobalInvocationID.x);
  if (c >= a.channels) return;
  Batch batch = Batch(a.batch);
  const Span span = Spans(batch.spans).at[a.first + int(gl_WorkGroupID.y)];
  KeepInputs(batch, span, c, gl_WorkGroupID.z == 1);
}
