// Attention over pages: a workgroup per head and token.
#include "ops/attention.h"

#include <algorithm>

#include "ops/vulkan/candidates.h"
#include "ops/vulkan/kernels.h"

namespace braid::ops::gpu {
namespace {

constexpr int64_t kDimMax = 576;  // write_kv.comp, attention.comp

const char* ShapeWhyNot(const AttentionShape& shape) {
  if (shape.head_dim > kDimMax || shape.out_dim() > kDimMax)
    return "heads of more than 576 channels";
  const bool whole = shape.head_dim % 4 == 0 && shape.out_dim() % 4 == 0;
  return whole ? nullptr : "heads whose channels are no multiple of 4";
}
const char* WriteWhyNot(const Device&, const WriteKvArgs& a) { return ShapeWhyNot(a.shape); }
const char* AttentionWhyNot(const Device&, const AttentionArgs& a) { return ShapeWhyNot(a.shape); }

uint32_t TypeOf(const AttentionShape& shape) {  // pages.glsl
  return shape.kv_dtype == DType::kF32 ? 0 : shape.kv_dtype == DType::kBF16 ? 1 : 2;
}

int64_t FirstToken(const SequenceIndex& sequences) {
  return sequences.count > 0 ? sequences.spans[0].token_begin : 0;
}

// write_kv.comp's arguments.
struct WriteArguments {
  uint64_t batch, q, k, v, q_norm, k_norm, frequency, q_out, slice;
  int32_t heads, first_token, dims, q_step, q_stride, k_stride, v_stride, out_stride;
  int32_t pairs_group;
  float norm_offset, eps, rotary_scale;
};

int32_t PairsAndGroup(int32_t pairs, bool interleaved, int32_t group) {
  return pairs | (interleaved ? 1 << 15 : 0) | group << 16;
}

void RunWrite(const OpContext& context, const WriteKvArgs& a, std::byte*) {
  const AttentionShape& s = a.shape;
  const WriteArguments arguments{.batch = BatchOf(context),
                                 .q = Address(a.q.data),
                                 .k = Address(a.k.data),
                                 .v = Address(a.v.data),
                                 .q_norm = Address(a.q_norm),
                                 .k_norm = Address(a.k_norm),
                                 .frequency = Address(a.inverse_frequency),
                                 .q_out = Address(a.q_out.data),
                                 .slice = static_cast<uint64_t>(a.cache.byte_offset),
                                 .heads = s.heads | s.kv_heads << 16,
                                 .first_token = Int(FirstToken(a.sequences)),
                                 .dims = Int(s.head_dim | s.out_dim() << 16),
                                 .q_step = Int(a.q_stride),
                                 .q_stride = Int(a.q.stride),
                                 .k_stride = Int(a.k.stride),
                                 .v_stride = Int(a.v.stride),
                                 .out_stride = Int(a.q_out.stride),
                                 .pairs_group = PairsAndGroup(a.rotary_pairs, false, a.cache.group),
                                 .norm_offset = a.norm_offset,
                                 .eps = a.eps,
                                 .rotary_scale = a.rotary_scale};
  context.recorder->Run(Kernel{"write_kv", kShaderWriteKv, {0, TypeOf(s)}}, arguments,
                        {s.heads + int64_t{2} * s.kv_heads, a.sequences.tokens});
}

const char* HeadNormWhyNot(const Device&, const HeadNormRotateArgs& a) {
  return a.head_dim > kDimMax ? "heads of more than 576 channels" : nullptr;
}
// As queries that have no keys.
void RunHeadNorm(const OpContext& context, const HeadNormRotateArgs& a, std::byte*) {
  const int64_t heads = a.x.cols / a.head_dim;
  const WriteArguments arguments{
      .batch = BatchOf(context),
      .q = Address(a.x.data),
      .q_norm = Address(a.weight),
      .frequency = Address(a.rotation.inverse_frequency),
      .q_out = Address(a.x.data),
      .heads = Int(heads),
      .first_token = Int(FirstToken(a.sequences)),
      .dims = Int(a.head_dim),
      .q_step = Int(a.head_dim),
      .q_stride = Int(a.x.stride),
      .out_stride = Int(a.x.stride),
      .pairs_group = PairsAndGroup(a.rotation.pairs, a.rotation.interleaved, 0),
      .eps = a.eps,
      .rotary_scale = a.rotation.scale};
  context.recorder->Run(Kernel{"write_kv", kShaderWriteKv}, arguments, {heads, a.sequences.tokens});
}

const char* WriteLatentWhyNot(const Device&, const WriteLatentArgs& a) {
  return ShapeWhyNot(a.shape);
}
void RunWriteLatent(const OpContext& context, const WriteLatentArgs& a, std::byte*) {
  const AttentionShape& s = a.shape;
  struct {
    uint64_t batch, q, q_out, row, norm, frequency, slice;
    int32_t heads, first_token, dims, q_width, out_width, q_stride, out_stride, row_stride;
    int32_t pairs_group;
    float eps, rotary_scale;
    int32_t unused = 0;
  } const arguments{BatchOf(context),
                    Address(a.q.data),
                    Address(a.q_out.data),
                    Address(a.row.data),
                    Address(a.norm),
                    Address(a.rotation.inverse_frequency),
                    static_cast<uint64_t>(a.cache.byte_offset),
                    s.heads,
                    Int(FirstToken(a.sequences)),
                    s.head_dim | s.value_dim << 16,
                    Int(a.q.cols / s.heads),
                    Int(a.q_out.cols / s.heads),
                    Int(a.q.stride),
                    Int(a.q_out.stride),
                    Int(a.row.stride),
                    PairsAndGroup(a.rotation.pairs, a.rotation.interleaved, a.cache.group),
                    a.eps,
                    a.rotation.scale};
  context.recorder->Run(Kernel{"write_latent", kShaderWriteLatent, {0, TypeOf(s)}}, arguments,
                        {s.heads + (a.row.data != nullptr ? 1 : 0), a.sequences.tokens});
}

constexpr int64_t kTokensOfRun = 256 * kBlockTokens;  // attention.comp

// The maximum and sum of every head between two runs.
int64_t AttentionScratch(const OpContext&, const AttentionArgs& a) {
  return 8 * int64_t{a.sequences.tokens} * a.shape.heads;
}

void RunAttention(const OpContext& context, const AttentionArgs& a, std::byte* scratch) {
  const AttentionShape& s = a.shape;
  struct {
    uint64_t batch, q, gate, out, running, slice, head_bytes, values_offset, scales_offset;
    int32_t first_token, heads, kv_heads, head_dim, value_dim, value_stride, q_stride, gate_stride;
    int32_t gate_head, out_stride, flags_group;
    float scale;
    int32_t run, unused = 0;
  } arguments{BatchOf(context),
              Address(a.q.data),
              Address(a.gate.data),
              Address(a.out.data),
              Address(scratch),
              static_cast<uint64_t>(a.cache.byte_offset),
              static_cast<uint64_t>(s.head_bytes()),
              static_cast<uint64_t>(s.latent ? 0 : s.keys_bytes()),
              static_cast<uint64_t>(s.keys_bytes() + s.values_bytes()),
              Int(FirstToken(a.sequences)),
              s.heads,
              s.kv_heads,
              s.head_dim,
              Int(s.out_dim()),
              Int(s.value_stride()),
              Int(a.q.stride),
              Int(a.gate.stride),
              Int(a.gate_stride),
              Int(a.out.stride),
              (a.gate_per_head ? 1 : 0) | (a.cache.skip_first ? 2 : 0) | a.cache.group << 2,
              a.scale,
              0};
  int64_t keys = 0;
  for (int32_t i = 0; i < a.sequences.count; ++i) {
    const SequenceSpan& span = a.sequences.spans[i];
    keys = std::max(keys, int64_t{span.start} + span.token_count);
  }
  const auto own = static_cast<uint32_t>(CeilDiv(s.out_dim(), 4 * kThreads));
  const Kernel kernel{"attention", kShaderAttention, {0, TypeOf(s), own}};
  for (; arguments.run * kTokensOfRun < keys; ++arguments.run) {
    context.recorder->Run(kernel, arguments, {s.heads, a.sequences.tokens});
  }
}

}  // namespace

constinit const Impl<WriteKvArgs> kNormRopeWriteKv = {"vulkan", WriteWhyNot, nullptr, RunWrite,
                                                      true};
constinit const Impl<HeadNormRotateArgs> kHeadNormRotate = {"vulkan", HeadNormWhyNot, nullptr,
                                                            RunHeadNorm, true};
constinit const Impl<WriteLatentArgs> kWriteLatent = {"vulkan", WriteLatentWhyNot, nullptr,
                                                      RunWriteLatent, true};
constinit const Impl<AttentionArgs> kAttention = {"vulkan", AttentionWhyNot, AttentionScratch,
                                                  RunAttention, true};

}  // namespace braid::ops::gpu
