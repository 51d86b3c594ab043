// The sequences of a step (ops/vulkan/batch.h).
struct Span {
  int token_begin, token_count, start, slot;
};
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Spans { Span at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Batch {
  uint64_t spans;
  uint64_t span_of;   // of each token
  uint64_t tables;    // addresses of blocks, [slot][group][entries]
  int groups, entries;
};

Span SpanOfToken(Batch batch, int token) {
  return Spans(batch.spans).at[Ints(batch.span_of).at[token]];
}

// The address of a block; 0 where the table has a hole.
uint64_t BlockOf(Batch batch, Span span, int group, int index) {
  const int64_t row = int64_t(span.slot) * batch.groups + group;
  return Addresses(batch.tables + 8ul * uint64_t(row * batch.entries + index)).at[0];
}
