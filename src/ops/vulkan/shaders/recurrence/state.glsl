// Where things lie in a state block (ops/linear_attention.h).
layout(constant_id = 0) const uint CONV_WIDTH = 1;
layout(constant_id = 1) const uint CHANNEL_DECAY = 0;

uint64_t SliceOf(Batch batch, Span span, int group, uint64_t slice, int chunk) {
  const uint64_t block = BlockOf(batch, span, group, chunk);
  return block == 0 ? 0 : block + slice;
}
