// Convolution and recurrence. A run of the recurrence takes the next chunk of every sequence, one
// head per workgroup; rows of the chunk in progress are scratch, so there are only as many
// workgroups at once as have some.
#include "ops/linear_attention.h"

#include <algorithm>

#include "ops/vulkan/candidates.h"
#include "ops/vulkan/kernels.h"

namespace braid::ops::gpu {
namespace {

void RunConv(const OpContext& context, const ConvArgs& a, std::byte*) {
  const LinearAttentionShape& s = a.shape;
  struct {
    uint64_t batch, x, weight, out, window;
    int32_t first, channels, x_stride, out_stride, group, window_rows;
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
              Int(s.window_rows())};
  const std::array<uint32_t, 6> constants = {static_cast<uint32_t>(s.conv_width)};
  const int64_t parts = CeilDiv(s.conv_channels(), kThreads);
  context.recorder->Run(Kernel{"conv", kShaderConv, constants}, arguments,
                        {parts, a.sequences.tokens});
  // Afterwards, for it replaces inputs from before the spans.
  arguments.first = Int(FirstSpan(context, a.sequences));
  context.recorder->Run(Kernel{"conv_window", kShaderConvWindow, constants}, arguments,
                        {parts, a.sequences.count, 2});
}

// delta.comp
constexpr int64_t kWorkgroups = 256, kKeysMax = 256;

const char* DeltaWhyNot(const Device&, const LinearAttentionArgs& a) {
  if (a.shape.state_dtype != DType::kF32) return "state that is not kept in fp32";
  if (a.shape.key_dim > kKeysMax) return "keys of more than 256 channels";
  return a.shape.key_dim % 4 == 0 ? nullptr : "keys whose channels are no multiple of 4";
}

// Rows of the chunk in progress of every workgroup, and states on their way to the next chunk.
int64_t RowBytes(const LinearAttentionShape& s) {
  return 4 * kBlockTokens * (s.key_dim + s.value_dim + s.decay_width());
}
int64_t DeltaScratch(const OpContext&, const LinearAttentionArgs& a) {
  const LinearAttentionShape& s = a.shape;
  const int64_t carried = (a.sequences.tokens / kBlockTokens + 1) * s.value_heads;
  return kWorkgroups * RowBytes(s) + carried * 4 * s.key_dim * s.value_dim;
}

int64_t ChunksOf(const SequenceIndex& sequences) {
  int64_t most = 0;
  for (int32_t i = 0; i < sequences.count; ++i) {
    const SequenceSpan& span = sequences.spans[i];
    most = std::max(most,
                    CeilDiv(int64_t{span.start % kBlockTokens} + span.token_count, kBlockTokens));
  }
  return most;
}

// Carried states lie by the tokens of the step.
void RunDelta(const OpContext& context, const LinearAttentionArgs& a, std::byte* scratch) {
  const LinearAttentionShape& s = a.shape;
  const bool constant = a.rule.decay == DecayForm::kConstant;
  const int64_t first_token = a.sequences.count > 0 ? a.sequences.spans[0].token_begin : 0;
  const int64_t state_bytes = 4 * int64_t{s.key_dim} * s.value_dim * s.value_heads;
  struct {
    uint64_t batch, qkv, decay, update, rates, bias, out, scratch, carry, slice;
    int32_t first_span, first_item, chunk, key_heads, value_heads, dims;
    int32_t qkv_stride, decay_stride, update_stride, out_stride, group_rule;
    float lower_bound;
  } arguments{BatchOf(context),
              Address(a.qkv.data),
              Address(a.a.data),
              Address(a.b.data),
              Address(constant ? a.constant : a.a_log),
              Address(a.dt_bias),
              Address(a.out.data),
              Address(scratch),
              Address(scratch) + static_cast<uint64_t>(kWorkgroups * RowBytes(s) -
                                                       first_token / kBlockTokens * state_bytes),
              static_cast<uint64_t>(a.cache.byte_offset),
              Int(FirstSpan(context, a.sequences)),
              0,
              0,
              s.key_heads,
              s.value_heads,
              s.key_dim | s.value_dim << 16,
              Int(a.qkv.stride),
              Int(a.a.stride),
              Int(a.b.stride),
              Int(a.out.stride),
              static_cast<int32_t>(a.rule.decay) | (a.rule.add ? 4 : 0) | a.cache.group << 3,
              a.rule.lower_bound};
  const Kernel kernel{"delta", kShaderDelta, {0, s.channel_decay ? 1u : 0u}};
  const int64_t items = int64_t{a.sequences.count} * s.value_heads;
  for (int64_t chunk = 0; chunk < ChunksOf(a.sequences); ++chunk) {
    for (int64_t first = 0; first < items; first += kWorkgroups) {
      arguments.chunk = Int(chunk);
      arguments.first_item = Int(first);
      context.recorder->Run(kernel, arguments, {std::min(kWorkgroups, items - first)});
    }
  }
}

}  // namespace

constinit const Impl<ConvArgs> kCausalConv = {"vulkan", Accepts, nullptr, RunConv, true};
constinit const Impl<LinearAttentionArgs> kLinearAttention = {"vulkan", DeltaWhyNot, DeltaScratch,
                                                              RunDelta, true};

}  // namespace braid::ops::gpu
