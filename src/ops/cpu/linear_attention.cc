// The recurrence on the CPU: one task per sequence and some of its value heads, which walks the
// chunks of its span, all its heads in one before the next: their channels lie side by side, and
// heads with the same keys share the values derived from them. States of chunks inside the span
// stay in the member's scratch, only boundaries that a page stands for are written to memory. A
// kernel works on fp32: pages that keep another type are loaded into the scratch before and stored
// from it after.
#include "ops/cpu/linear_attention.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/dispatch.h"
#include "ops/state_layout.h"

namespace braid::ops::cpu {
namespace {

const char* NeedsWholeVectors(const Device& device, const LinearAttentionShape& shape) {
  if (const char* why = NeedsAvx2(device)) return why;
  if (shape.key_dim % 8 != 0) return "key_dim is not a multiple of 8";
  if (shape.value_dim % 8 != 0) return "value_dim is not a multiple of 8";
  if (shape.conv_width > kConvWidthMax) return "convolution wider than 8";
  return nullptr;
}

void ConvTokens(const KernelTable& kernels, const ConvArgs& args, const SequenceSpan& span,
                int64_t begin, int64_t count) {
  ConvTask task = {};
  task.width = args.shape.conv_width;
  task.weight = args.weight;
  task.channels = args.shape.conv_channels();
  task.out_stride = args.out.stride;
  task.past_caches = PastCaches(args.out);
  for (int64_t i = begin; i < begin + count; i += task.tokens) {
    task.tokens = static_cast<int>(std::min(begin + count - i, int64_t{kConvTokens}));
    task.out = args.out.row(span.token_begin + i);
    ConvInputs(args, span, i, task.tokens, task.x);
    kernels.conv(task);
  }
}

int64_t ConvScratch(const OpContext&, const ConvArgs& args) {
  return args.shape.conv_channels() * 4;
}

void RunConv(const OpContext& context, const ConvArgs& args, std::byte* scratch) {
  const KernelTable& kernels = *KernelsFor(context.device);
  // Stands for inputs before the sequence's first token.
  const int64_t channels = args.shape.conv_channels();
  float* zeros = reinterpret_cast<float*>(scratch);
  std::fill_n(zeros, channels, 0.0f);
  ConvArgs with_zeros = args;
  with_zeros.zeros = zeros;
  const double flops = 20.0 * static_cast<double>(channels);
  // A run reads a few inputs before it once more, so long ones are better where there are many.
  const int64_t at_once =
      std::clamp<int64_t>(args.sequences.tokens / (8 * context.pool->threads()), 1, 32);
  ForTokenRuns(context, args.sequences, at_once, flops,
               [&](const SequenceSpan& span, int64_t begin, int64_t count, int) {
                 ConvTokens(kernels, with_zeros, span, begin, count);
               });
  // Only now, for the pages' windows are inputs of the loop above.
  ForTasks(context, args.sequences.count, flops * args.sequences.count,
           [&](int64_t i, int) { WriteConvWindows(with_zeros, args.sequences.spans[i]); });
}

// Heads of one task at most: their states lie in the second-level cache.
constexpr int64_t kHeadsAtOnce = 4;

// Scratch of one member: the kernel's own, the rows of a chunk, a state for each head.
int64_t MemberFloats(const LinearAttentionShape& s) {
  const int64_t dk = s.key_dim, dv = s.value_dim;
  return DeltaScratchFloats(dk, dv) + kBlockTokens * (dk + dv + s.decay_width()) +
         kHeadsAtOnce * dk * dv;
}

// What pages keep of rows: how they are rounded, loaded and stored.
struct PageRows {
  CacheFormat format;
  const KernelTable& kernels;

  static PageRows Of(const OpContext& context, const LinearAttentionShape& s) {
    const CacheFormat format = s.state_dtype == DType::kI8     ? CacheFormat::kI8
                               : s.state_dtype == DType::kBF16 ? CacheFormat::kBF16
                                                               : CacheFormat::kF32;
    return {format, *KernelsFor(context.device, s.key_dim, s.value_dim)};
  }
  bool in_place() const { return format == CacheFormat::kF32; }
  void Round(float* x, int64_t rows, int64_t dim) const {
    if (!in_place()) kernels.round_rows(format, x, rows, dim);
  }
  // Rows [begin, end) of x, or into it.
  void Store(const float* x, int64_t begin, int64_t end, const CachedRows& to) const {
    const int64_t at = begin * to.dim;
    kernels.store_rows(x + at, {format, end - begin, to.dim, to.rows + at * BytesOf(format),
                                to.scales ? to.scales + begin : nullptr});
  }
  void Load(const CachedRows& from, int64_t end, float* x) const {
    kernels.load_rows({format, end, from.dim, from.rows, from.scales}, x);
  }
};
float* InPlace(const CachedRows& rows) { return reinterpret_cast<float*>(rows.rows); }

// Log decays and update gates of all tokens, then the decays' rates, then the members' scratch.
struct Gates {
  float* log_decay;  // [tokens][value_heads * decay_width]
  float* beta;       // [tokens][value_heads]
  float* rate;       // [value_heads * decay_width] exp(a_log)
  float* members;
};
int64_t GateFloats(const LinearAttentionArgs& args) {
  const int64_t heads = args.shape.value_heads, width = args.shape.decay_width();
  return RoundUp(args.qkv.rows * heads * (1 + width) + heads * width, 16);
}
Gates SplitGates(const LinearAttentionArgs& args, std::byte* scratch) {
  const int64_t heads = args.shape.value_heads, width = args.shape.decay_width();
  Gates g;
  g.log_decay = reinterpret_cast<float*>(scratch);
  g.beta = g.log_decay + args.qkv.rows * heads * width;
  g.rate = g.beta + args.qkv.rows * heads;
  g.members = g.log_decay + GateFloats(args);
  return g;
}

int64_t StepScratch(const OpContext& context, const LinearAttentionArgs& args) {
  return 4 * (GateFloats(args) + MemberFloats(args.shape) * context.pool->threads());
}

void PrepareGates(const KernelTable& kernels, const LinearAttentionArgs& args, int64_t token,
                  const Gates& g) {
  const int64_t heads = args.shape.value_heads, all = heads * args.shape.decay_width();
  float* log_decay = g.log_decay + token * all;
  float* beta = g.beta + token * heads;
  if (args.rule.decay == DecayForm::kConstant) {
    for (int64_t h = 0; h < heads; ++h) LogDecays(args, token, h, log_decay + h * (all / heads));
  } else {
    kernels.log_decay({.a = args.a.row(token),
                       .bias = args.dt_bias,
                       .rate = g.rate,
                       .bound = args.rule.decay == DecayForm::kBounded ? args.rule.lower_bound : 0,
                       .out = log_decay,
                       .count = all});
  }
  if (args.rule.add) {
    std::fill_n(beta, heads, 1.0f);
  } else {
    kernels.sigmoid(args.b.row(token), beta, heads);
  }
}

// q and k as the recurrence wants them, decays and update gates of every token.
void Prepare(const OpContext& context, const LinearAttentionArgs& args, const PageRows& pages,
             const Gates& gates) {
  const KernelTable& kernels = *KernelsFor(context.device);
  const LinearAttentionShape& s = args.shape;
  const int64_t width = s.decay_width();
  for (int64_t i = 0; args.a_log && i < s.value_heads * width; ++i) {
    gates.rate[i] = i % width == 0 ? std::exp(args.a_log[i / width]) : gates.rate[i - 1];
  }
  constexpr int64_t kTokensPerTask = 16;
  const double flops = 20.0 * static_cast<double>(args.qkv.rows * s.conv_channels());
  ForTasks(context, CeilDiv(args.qkv.rows, kTokensPerTask), flops, [&](int64_t task, int) {
    const int64_t end = std::min(args.qkv.rows, (task + 1) * kTokensPerTask);
    for (int64_t t = task * kTokensPerTask; t < end; ++t) {
      float* row = args.qkv.row(t);
      for (int64_t c = 0; args.rule.add && c < int64_t{s.key_heads} * s.key_dim; ++c) {
        row[c] *= QueryScale(s);
      }
      for (int64_t h = 0; !args.rule.add && h < s.key_heads; ++h) {
        kernels.unit(row + h * s.key_dim, s.key_dim, QueryScale(s));
        kernels.unit(row + (s.key_heads + h) * s.key_dim, s.key_dim, 1.0f);
      }
      pages.Round(row + int64_t{s.key_heads} * s.key_dim, s.key_heads, s.key_dim);
      PrepareGates(kernels, args, t, gates);
    }
  });
}

struct HeadScratch {
  float* kernel;
  float* rows_k;
  float* rows_u;
  float* rows_g;
  float* states;  // [kHeadsAtOnce][dk][dv]
};
HeadScratch SplitScratch(float* p, const LinearAttentionShape& s) {
  HeadScratch h;
  h.kernel = p;
  h.rows_k = h.kernel + DeltaScratchFloats(s.key_dim, s.value_dim);
  h.rows_u = h.rows_k + kBlockTokens * s.key_dim;
  h.rows_g = h.rows_u + kBlockTokens * s.value_dim;
  h.states = h.rows_g + kBlockTokens * s.decay_width();
  return h;
}

// A chunk's rows live in its page while it is in progress. A chunk that this span completes works
// on scratch, for the page then receives the state that is computed from those rows.
void ChooseRows(const PageRows& pages, const StatePage& page, bool completes, const HeadScratch& h,
                DeltaTask& task) {
  const int32_t row_begin = task.row_begin;
  CHECK(page.state.rows || (completes && row_begin == 0), "no state page for a chunk in progress");
  const bool in_place = pages.in_place() && !completes;
  task.rows_k = in_place ? InPlace(page.rows_k) : h.rows_k;
  task.rows_u = in_place ? InPlace(page.rows_u) : h.rows_u;
  task.rows_g = completes ? h.rows_g : page.rows_g;
  if (in_place || row_begin == 0) return;
  pages.Load(page.rows_k, row_begin, h.rows_k);
  pages.Load(page.rows_u, row_begin, h.rows_u);
  if (!completes) return;
  std::copy_n(page.rows_g, row_begin * (task.channel_decay ? task.dk : 1), h.rows_g);
}

// Brings what a task left in scratch to its page.
void Keep(const PageRows& pages, const StatePage& page, const DeltaTask& task) {
  if (pages.in_place()) return;
  if (task.s1) {
    pages.Round(task.s1, task.dk, task.dv);
    if (page.state.rows) pages.Store(task.s1, 0, task.dk, page.state);
    return;
  }
  pages.Store(task.rows_k, task.row_begin, task.row_end, page.rows_k);
  pages.Store(task.rows_u, task.row_begin, task.row_end, page.rows_u);
}

// The tokens of a span that lie in one chunk, of one head.
struct Part {
  int64_t position;  // of the first, in the sequence
  int64_t head;
};

int64_t EndOf(const SequenceSpan& span, const Part& part) {
  return std::min<int64_t>(span.start + span.token_count,
                           (part.position / kBlockTokens + 1) * kBlockTokens);
}

DeltaTask TaskOf(const LinearAttentionArgs& args, const SequenceSpan& span, const Gates& gates,
                 const Part& part) {
  const LinearAttentionShape& s = args.shape;
  const int64_t key_head = part.head / (s.value_heads / s.key_heads);
  const int64_t token = span.token_begin + part.position - span.start;
  DeltaTask task = {};
  task.row_begin = static_cast<int32_t>(part.position % kBlockTokens);
  task.row_end = task.row_begin + static_cast<int32_t>(EndOf(span, part) - part.position);
  task.dk = s.key_dim;
  task.dv = s.value_dim;
  task.channel_decay = s.channel_decay;
  task.add = args.rule.add;
  task.q = args.qkv.row(token) + key_head * s.key_dim;
  task.k = task.q + int64_t{s.key_heads} * s.key_dim;
  task.v = args.qkv.row(token) + 2 * int64_t{s.key_heads} * s.key_dim + part.head * s.value_dim;
  task.token_stride = args.qkv.stride;
  task.log_decay = gates.log_decay + (token * s.value_heads + part.head) * s.decay_width();
  task.decay_stride = s.value_heads * s.decay_width();
  task.beta = gates.beta + token * s.value_heads + part.head;
  task.beta_stride = s.value_heads;
  task.out = args.out.row(token) + part.head * s.value_dim;
  task.out_stride = args.out.stride;
  task.past_caches = s.value_dim % 16 == 0 && PastCaches(args.out);
  return task;
}

// What may be fetched for `next` while `task` runs.
void Announce(const LinearAttentionArgs& args, const SequenceSpan& span, const Gates& gates,
              const Part& next, DeltaTask& task) {
  if (next.position >= span.start + span.token_count) return;
  const DeltaTask follows = TaskOf(args, span, gates, next);
  task.next.tokens = follows.row_end - follows.row_begin;
  task.next.v = follows.v;
  if (args.shape.channel_decay) task.next.log_decay = follows.log_decay;
  if (follows.k != task.k) {
    task.next.k = follows.k;
    task.next.q = follows.q;
  }
  if (follows.row_begin == 0) return;
  const StatePage page =
      PageOf(args.shape, args.cache, span, next.position / kBlockTokens, next.head);
  if (task.kept == CacheFormat::kF32) task.next.rows_k = InPlace(page.rows_k);
  task.next.rows_g = page.rows_g;
}

using DeltaKernel = void (*)(const DeltaTask&);

// Heads [begin, end) of one sequence.
void RunHeads(DeltaKernel delta, const LinearAttentionArgs& args, const PageRows& pages,
              const SequenceSpan& span, int64_t begin, int64_t end, const Gates& gates,
              const HeadScratch& h) {
  const LinearAttentionShape& s = args.shape;
  const float* states[kHeadsAtOnce] = {};
  for (int64_t head = begin; head < end; ++head) {
    const CachedRows before = StateBefore(args, span, head);
    if (!before.rows) continue;
    float* own = h.states + (head - begin) * s.key_dim * s.value_dim;
    if (!pages.in_place()) pages.Load(before, s.key_dim, own);
    states[head - begin] = pages.in_place() ? InPlace(before) : own;
  }
  for (Part part = {span.start, begin}; part.position < span.start + span.token_count;) {
    const Part next =
        part.head + 1 < end ? Part{part.position, part.head + 1} : Part{EndOf(span, part), begin};
    const int64_t chunk = part.position / kBlockTokens;
    const StatePage page = PageOf(s, args.cache, span, chunk, part.head);
    DeltaTask task = TaskOf(args, span, gates, part);
    task.kept = pages.format;
    const bool completes = task.row_end == kBlockTokens;
    const int64_t heads_per_key = s.value_heads / s.key_heads;
    task.same_keys =
        completes && !s.channel_decay && part.head > begin && part.head % heads_per_key != 0;
    task.s0 = states[part.head - begin];
    task.scratch = h.kernel;
    ChooseRows(pages, page, completes, h, task);
    if (completes) {
      float* own = h.states + (part.head - begin) * s.key_dim * s.value_dim;
      task.s1 = pages.in_place() && page.state.rows ? InPlace(page.state) : own;
    }
    Announce(args, span, gates, next, task);
    delta(task);
    Keep(pages, page, task);
    states[part.head - begin] = task.s1;
    part = next;
  }
}

// Heads of one task: whole groups with the same keys, but enough tasks for all members. In decode a
// head is short, and the more of them in a row, the more is fetched in time.
int64_t HeadsAtOnce(const OpContext& context, const LinearAttentionArgs& args) {
  const LinearAttentionShape& s = args.shape;
  const bool decode = args.qkv.rows == args.sequences.count;
  const int64_t tasks_least = int64_t{decode ? 4 : 8} * context.pool->threads();
  const int64_t most = std::clamp<int64_t>(
      int64_t{args.sequences.count} * s.value_heads / tasks_least, 1, kHeadsAtOnce);
  const int64_t heads_per_key = s.value_heads / s.key_heads;
  return most > heads_per_key ? most / heads_per_key * heads_per_key : most;
}

void RunStep(const OpContext& context, const LinearAttentionArgs& args, std::byte* scratch,
             DeltaKernel delta) {
  const LinearAttentionShape& s = args.shape;
  const Gates gates = SplitGates(args, scratch);
  const PageRows pages = PageRows::Of(context, s);
  Prepare(context, args, pages, gates);
  const double flops = static_cast<double>(args.qkv.rows) * static_cast<double>(s.value_heads) *
                       8.0 * s.key_dim * s.value_dim;
  const int64_t heads = s.value_heads, at_once = HeadsAtOnce(context, args);
  const int64_t groups = CeilDiv(heads, at_once);
  ForTasks(context, args.sequences.count * groups, flops, [&](int64_t task, int member) {
    const HeadScratch h = SplitScratch(gates.members + member * MemberFloats(s), s);
    const int64_t begin = task % groups * at_once;
    RunHeads(delta, args, pages, args.sequences.spans[task / groups], begin,
             std::min(heads, begin + at_once), gates, h);
  });
}

void RunOnLanes(const OpContext& context, const LinearAttentionArgs& args, std::byte* scratch) {
  const LinearAttentionShape& s = args.shape;
  RunStep(context, args, scratch, KernelsFor(context.device, s.key_dim, s.value_dim)->delta);
}
template <const TileKernels& (*kKernels)()>
void RunOnTiles(const OpContext& context, const LinearAttentionArgs& args, std::byte* scratch) {
  RunStep(context, args, scratch, kKernels().delta);
}

const char* WhyNotConv(const Device& device, const ConvArgs& args) {
  return NeedsWholeVectors(device, args.shape);
}
const char* WhyNotStep(const Device& device, const LinearAttentionArgs& args) {
  return NeedsWholeVectors(device, args.shape);
}
template <const char* (*kNeeds)(const Device&)>
const char* WhyNotTiles(const Device& device, const LinearAttentionArgs& args) {
  if (const char* why = kNeeds(device)) return why;
  if (device.compute != Compute::kBF16) return "operands are to stay fp32";
  if (args.shape.key_dim % 32 != 0) return "key_dim is not a multiple of 32";
  if (args.shape.value_dim % 16 != 0) return "value_dim is not a multiple of 16";
  return nullptr;
}

}  // namespace

constinit const Impl<ConvArgs> kCausalConv = {"cpu", WhyNotConv, ConvScratch, RunConv};
constinit const Impl<LinearAttentionArgs> kLinearAttentionAmx = {
    "amx", WhyNotTiles<NeedsAmx>, StepScratch, RunOnTiles<AmxTileKernels>};
constinit const Impl<LinearAttentionArgs> kLinearAttentionBf16 = {
    "avx512_bf16", WhyNotTiles<NeedsAvx512Bf16>, StepScratch, RunOnTiles<DotTileKernels>};
constinit const Impl<LinearAttentionArgs> kLinearAttention = {"cpu", WhyNotStep, StepScratch,
                                                              RunOnLanes};

}  // namespace braid::ops::cpu
