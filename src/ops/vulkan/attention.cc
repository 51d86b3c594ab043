// Attention over pages. Tiles of rows walk over the blocks of keys, or blocks are split between
// workgroups and their sums merged: one order of sums, so the choice may depend on the step.
#include "ops/attention.h"

#include <algorithm>
#include <numeric>

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

// attention.glsl's arguments.
struct AttentionArguments {
  uint64_t batch, q, gate, out, running, parts, slice;
  int32_t first_span, spans, first_token, first_of_all;
  int32_t heads, dims, q_stride, gate_stride, gate_head, out_stride, flags_group;
  int32_t first_block, blocks, unit;
  float scale;
  int32_t unused = 0;
};

constexpr int64_t kChunksMax = 9;          // attention.glsl
constexpr int64_t kBlocksWalked = 64;      // of a dispatch; lavapipe bounds the rounds of loops
constexpr int64_t kBlocksSplit = 512;      // of a dispatch
constexpr int64_t kPartsBytes = 32 << 20;  // of blocks whose sums wait to be merged
constexpr int64_t kTile = 32;              // rows of the largest tile
constexpr int64_t kFull = 256;             // workgroups that keep a device busy
constexpr int32_t kTokensLong = 16;        // of a span that is a prompt's rather than drafts

// Of a block of one token.
int64_t PartBytes(const AttentionShape& s) { return 4 * s.heads * (s.out_dim() + 4); }

int64_t RunningBytes(const AttentionArgs& a) {
  return RoundUp(8 * kChunksMax * a.sequences.tokens * a.shape.heads, 64);
}
int64_t PartsBytes(const AttentionArgs& a) {
  return std::min(kPartsBytes, PartBytes(a.shape) * a.sequences.tokens * kBlocksSplit);
}
int64_t AttentionScratch(const OpContext&, const AttentionArgs& a) {
  return RunningBytes(a) + PartsBytes(a);
}

// Spans that follow each other and are computed in the same way.
struct SpanRun {
  int32_t first = 0, count = 0;  // of the op's
  int64_t tokens = 0;
  int64_t longest = 0;  // tokens of a span
  int64_t blocks = 0;   // up to the last token of a span
  int64_t tiles = 0;    // the largest, of one kv head
};

void Add(SpanRun& run, const SequenceSpan& span, int64_t group) {
  ++run.count;
  run.tokens += span.token_count;
  run.longest = std::max(run.longest, int64_t{span.token_count});
  run.blocks = std::max(run.blocks, CeilDiv(int64_t{span.start} + span.token_count, kBlockTokens));
  run.tiles += CeilDiv(span.token_count * group, kTile);
}

// Units of tokens whose rows fill tiles, and their tiles.
struct Units {
  int64_t tokens, tiles;
};
Units UnitsOf(const SpanRun& run, int64_t group, int64_t tile) {
  const int64_t tokens = tile / std::gcd(tile, group);
  return {tokens, CeilDiv(std::min(tokens, run.longest) * group, tile)};
}

// attention.comp's dispatches for a run. A workgroup that walks over all blocks of its tile needs
// no memory for them; where these would be too few to keep a device busy, blocks are split.
class AttentionRuns {
 public:
  AttentionRuns(const OpContext& context, const AttentionArgs& a, std::byte* scratch)
      : context_(context), a_(a), group_(a.shape.heads / a.shape.kv_heads) {
    const AttentionShape& s = a.shape;
    const bool lines = Address(a.q.data) % 16 == 0 && a.q.stride % 4 == 0;
    arguments_ = {.batch = BatchOf(context),
                  .q = Address(a.q.data),
                  .gate = Address(a.gate.data),
                  .out = Address(a.out.data),
                  .running = Address(scratch),
                  .parts = Address(scratch + RunningBytes(a)),
                  .slice = static_cast<uint64_t>(a.cache.byte_offset),
                  .first_of_all = Int(FirstToken(a.sequences)),
                  .heads = s.heads | s.kv_heads << 16,
                  .dims = Int(s.head_dim | s.out_dim() << 16),
                  .q_stride = Int(a.q.stride),
                  .gate_stride = Int(a.gate.stride),
                  .gate_head = Int(a.gate_stride),
                  .out_stride = Int(a.out.stride),
                  .flags_group = (a.gate_per_head ? 1 : 0) | (a.cache.skip_first ? 2 : 0) |
                                 (s.latent ? 4 : 0) | (lines ? 8 : 0) | a.cache.group << 4,
                  .scale = a.scale};
  }

  void Run() {
    const SequenceIndex& sequences = a_.sequences;
    SpanRun run;
    for (int32_t i = 0; i < sequences.count; ++i) {
      const SequenceSpan& span = sequences.spans[i];
      const bool other = run.count > 0 && (Long(span) != Long(sequences.spans[run.first]) ||
                                           (!Long(span) && Fit(run, span) < kBlocksAtLeast));
      if (other) {
        Run(run);
        run = {.first = i};
      }
      Add(run, span, group_);
    }
    if (run.count > 0) Run(run);
  }

 private:
  static constexpr int64_t kBlocksAtLeast = 8;  // of short spans, in one dispatch

  static bool Long(const SequenceSpan& span) { return span.token_count >= kTokensLong; }
  // Blocks whose parts have room.
  int64_t Fit(int64_t tokens) const {
    return std::min(kBlocksSplit, PartsBytes(a_) / (PartBytes(a_.shape) * tokens));
  }
  int64_t Fit(const SpanRun& run, const SequenceSpan& span) const {
    return Fit(run.tokens + span.token_count);
  }

  void Run(const SpanRun& run) {
    if (run.tokens == 0) return;
    const bool busy = run.tiles * a_.shape.kv_heads >= kFull || run.blocks <= kBlocksFew;
    const bool is_long = Long(a_.sequences.spans[run.first]);
    if (Fit(run.tokens) == 0 || run.blocks == 1 || (is_long && busy)) {
      Walk(run);
    } else {
      Split(run);
    }
  }
  static constexpr int64_t kBlocksFew = 4;

  void Walk(const SpanRun& run) {
    const bool wide = a_.shape.out_dim() > 256;
    const Kernel kernel =
        wide ? Kernel{"attention of wide values", kShaderAttentionWide, Constants(128)}
             : Kernel{"attention", kShaderAttention, Constants(64)};
    const Groups groups = Prepare(run, kTile);
    arguments_.blocks = kBlocksWalked;
    for (int64_t block = 0; block < run.blocks; block += kBlocksWalked) {
      arguments_.first_block = Int(block);
      context_.recorder->Run(kernel, arguments_, groups);
    }
  }

  void Split(const SpanRun& run) {
    const int64_t rows = run.longest * group_;
    const int64_t tile = rows <= 8 ? 8 : rows <= 16 ? 16 : kTile;
    const Kernel kernel =
        tile == 8    ? Kernel{"attention of 8 rows", kShaderAttentionSplit1, Constants(64)}
        : tile == 16 ? Kernel{"attention of 16 rows", kShaderAttentionSplit2, Constants(64)}
                     : Kernel{"attention of 32 rows", kShaderAttentionSplit4, Constants(64)};
    const Kernel merge{"attention's merge", kShaderAttentionMerge};
    Groups groups = Prepare(run, tile);
    const int64_t fit = std::min(Fit(run.tokens), run.blocks);
    arguments_.blocks = Int(fit);
    for (int64_t block = 0; block < run.blocks; block += fit) {
      arguments_.first_block = Int(block);
      groups.x = std::min(fit, run.blocks - block);
      context_.recorder->Run(kernel, arguments_, groups);
      context_.recorder->Run(
          merge, arguments_,
          {CeilDiv(a_.shape.out_dim(), int64_t{64}), run.tokens, a_.shape.heads});
    }
  }

  // `width`: channels of a chunk of values.
  vulkan::KernelConstants Constants(int64_t width) const {
    return {0, TypeOf(a_.shape), static_cast<uint32_t>(CeilDiv(a_.shape.out_dim(), width))};
  }

  // Sets what all dispatches of a run have, and returns their workgroups.
  Groups Prepare(const SpanRun& run, int64_t tile) {
    const Units units = UnitsOf(run, group_, tile);
    const SequenceSpan* spans = a_.sequences.spans + run.first;
    const SequenceSpan& last = spans[run.count - 1];
    arguments_.first_span = Int(FirstSpan(context_, a_.sequences) + run.first);
    arguments_.spans = run.count;
    arguments_.first_token = spans[0].token_begin;
    arguments_.unit = Int(units.tokens | units.tiles << 16);
    return {1,
            (last.token_begin - spans[0].token_begin) / units.tokens + run.count - 1 +
                CeilDiv(int64_t{last.token_count}, units.tokens),
            a_.shape.kv_heads * units.tiles};
  }

  const OpContext& context_;
  const AttentionArgs& a_;
  const int64_t group_;  // query heads of a kv head
  AttentionArguments arguments_;
};

void RunAttention(const OpContext& context, const AttentionArgs& a, std::byte* scratch) {
  AttentionRuns(context, a, scratch).Run();
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
