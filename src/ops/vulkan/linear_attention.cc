// Convolution and recurrence. Of the recurrence, sequences with few rows have one run together. The
// others have two runs for as many chunks as have scratch: one for what needs no state, and one in
// which each workgroup walks the chunks.
#include "ops/linear_attention.h"

#include <algorithm>
#include <span>

#include "ops/vulkan/candidates.h"
#include "ops/vulkan/kernels.h"

namespace braid::ops::gpu {
namespace {

constexpr int64_t kFewTokens = 8;  // that an invocation of the convolution has

void RunConv(const OpContext& context, const ConvArgs& a, std::byte*) {
  const LinearAttentionShape& s = a.shape;
  struct {
    uint64_t batch, x, weight, out, window;
    int32_t first, channels, x_stride, out_stride, group, window_rows, few, unused = 0;
  } arguments{BatchOf(context),
              Address(a.x.data),
              Address(a.weight),
              Address(a.out.data),
              static_cast<uint64_t>(a.cache.byte_offset + s.window_offset()),
              a.sequences.count > 0 ? a.sequences.spans[0].token_begin : 0,
              Int(s.conv_channels()),
              Int(a.x.stride),
              Int(a.out.stride),
              a.cache.group,
              Int(s.window_rows()),
              0};
  const Kernel conv{"conv", kShaderConv, {static_cast<uint32_t>(s.conv_width)}};
  const int64_t parts = CeilDiv(s.conv_channels(), kThreads);
  const std::span spans(a.sequences.spans, static_cast<size_t>(a.sequences.count));
  if (std::ranges::all_of(
          spans, [](const SequenceSpan& span) { return span.token_count <= kFewTokens; })) {
    arguments.few = 1;
    arguments.first = Int(FirstSpan(context, a.sequences));
    context.recorder->Run(conv, arguments, {parts, a.sequences.count});
    return;
  }
  context.recorder->Run(conv, arguments, {parts, a.sequences.tokens});
  // Afterwards, for it replaces inputs from before the spans.
  arguments.first = Int(FirstSpan(context, a.sequences));
  context.recorder->Run(Kernel{"conv_window", kShaderConvWindow, conv.constants}, arguments,
                        {parts, a.sequences.count, 2});
}

// delta.glsl
constexpr int64_t kColumns = 32, kKeysMax = 256, kStepRows = 4;
// Chunks of heads that have scratch at once, and chunks of a sequence.
constexpr int64_t kItems = 512, kChunksMax = 16;

const char* DeltaWhyNot(const Device&, const LinearAttentionArgs& a) {
  if (a.shape.state_dtype != DType::kF32) return "state that is not kept in fp32";
  if (a.shape.key_dim > kKeysMax) return "keys of more than 256 channels";
  return a.shape.key_dim % 4 == 0 ? nullptr : "keys whose channels are no multiple of 4";
}

// Chunks of every head that are done at once: none is without a token.
int64_t ChunksAtOnce(const LinearAttentionArgs& a) {
  const int64_t most = std::clamp<int64_t>(kItems / a.shape.value_heads, 1, kChunksMax);
  return std::clamp<int64_t>(a.sequences.tokens, 1, most);
}
int64_t ItemBytes(const LinearAttentionShape& s) {
  const int64_t row = s.key_dim + std::max(s.key_dim, s.value_dim) + s.decay_width();
  return 4 * kBlockTokens * RoundUp(row + 2 * kBlockTokens, 4);
}
// Rows of chunks, and states of sequences on their way from chunk to chunk.
int64_t DeltaScratch(const OpContext&, const LinearAttentionArgs& a) {
  const LinearAttentionShape& s = a.shape;
  const int64_t state = 4 * int64_t{s.key_dim} * s.value_dim;
  return ChunksAtOnce(a) * s.value_heads * (ItemBytes(s) + state);
}

bool IsStep(const SequenceSpan& span) {
  return span.token_count <= kStepRows &&
         span.start % kBlockTokens + span.token_count < kBlockTokens;
}
int64_t ChunksOf(const SequenceSpan& span) {
  return CeilDiv(int64_t{span.start % kBlockTokens} + span.token_count, kBlockTokens);
}

struct DeltaArguments {
  uint64_t batch, qkv, decay, update, rates, bias, out, scratch, carry, slice;
  int32_t first_span, first_chunk, chunks, heads, dims;
  int32_t qkv_stride, decay_stride, update_stride, out_stride, group_rule;
  float lower_bound;
  int32_t unused = 0;
};
DeltaArguments ArgumentsOf(const OpContext& context, const LinearAttentionArgs& a,
                           const std::byte* scratch) {
  const LinearAttentionShape& s = a.shape;
  const bool constant = a.rule.decay == DecayForm::kConstant;
  return {BatchOf(context),
          Address(a.qkv.data),
          Address(a.a.data),
          Address(a.b.data),
          Address(constant ? a.constant : a.a_log),
          Address(a.dt_bias),
          Address(a.out.data),
          Address(scratch),
          Address(scratch) + static_cast<uint64_t>(ChunksAtOnce(a) * s.value_heads * ItemBytes(s)),
          static_cast<uint64_t>(a.cache.byte_offset),
          Int(FirstSpan(context, a.sequences)),
          0,
          0,
          s.key_heads | s.value_heads << 16,
          s.key_dim | s.value_dim << 16,
          Int(a.qkv.stride),
          Int(a.a.stride),
          Int(a.b.stride),
          Int(a.out.stride),
          static_cast<int32_t>(a.rule.decay) | (a.rule.add ? 4 : 0) | a.cache.group << 3,
          a.rule.lower_bound};
}

// How many sequences from the first on are done at once: as many as have scratch, as long as half
// of it is used.
int64_t SequencesAtOnce(const SequenceIndex& sequences, int64_t first, int64_t chunks_at_once) {
  int64_t most = ChunksOf(sequences.spans[first]), all = most, count = 1;
  for (; first + count < sequences.count; ++count) {
    const int64_t chunks = ChunksOf(sequences.spans[first + count]);
    most = std::max(most, chunks);
    all += chunks;
    if (most * (count + 1) > std::min(chunks_at_once, 2 * all)) break;
  }
  return count;
}

void RunDelta(const OpContext& context, const LinearAttentionArgs& a, std::byte* scratch) {
  const LinearAttentionShape& s = a.shape;
  const uint32_t channel_decay = s.channel_decay ? 1 : 0;
  const Kernel step{"delta_step", kShaderDeltaStep, {0, channel_decay}};
  const Kernel rows{"delta_rows", kShaderDeltaRows, {0, channel_decay}};
  const Kernel delta{"delta", kShaderDelta, {0, channel_decay}};
  const std::span spans(a.sequences.spans, static_cast<size_t>(a.sequences.count));
  const int64_t columns = CeilDiv(int64_t{s.value_dim}, kColumns);  // two of them in a step
  DeltaArguments arguments = ArgumentsOf(context, a, scratch);
  // Each kernel leaves the others' sequences out.
  if (std::ranges::any_of(spans, IsStep)) {
    context.recorder->Run(step, arguments, {CeilDiv(columns, 2), s.value_heads, a.sequences.count});
  }
  const int64_t first_span = arguments.first_span, at_once = ChunksAtOnce(a);
  for (int64_t first = 0; first < a.sequences.count;) {
    if (IsStep(spans[static_cast<size_t>(first)])) {
      ++first;
      continue;
    }
    const int64_t count = SequencesAtOnce(a.sequences, first, at_once);
    int64_t most = 0;
    for (int64_t i = first; i < first + count; ++i) {
      most = std::max(most, ChunksOf(spans[static_cast<size_t>(i)]));
    }
    arguments.first_span = Int(first_span + first);
    for (int64_t chunk = 0; chunk < most; chunk += at_once) {
      const int64_t chunks = std::min(at_once, most - chunk);
      arguments.first_chunk = Int(chunk);
      arguments.chunks = Int(chunks);
      context.recorder->Run(rows, arguments, {s.value_heads, chunks, count});
      context.recorder->Run(delta, arguments, {columns, s.value_heads, count});
    }
    first += count;
  }
}

}  // namespace

constinit const Impl<ConvArgs> kCausalConv = {"vulkan", Accepts, nullptr, RunConv, true};
constinit const Impl<LinearAttentionArgs> kLinearAttention = {"vulkan", DeltaWhyNot, DeltaScratch,
                                                              RunDelta, true};

}  // namespace braid::ops::gpu
