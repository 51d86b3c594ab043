// Attention (grouped and latent), convolution and linear attention with the mid model's heads:
// decode and prefill at several contexts. Pages lie scattered as the cache hands them out: one
// buffer per sequence, blocks in order.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/math.h"
#include "cli/bench/bench_device.h"
#include "cli/bench/ops.h"
#include "ops/kv_page.h"
#include "ops/latent.h"
#include "ops/linear_attention.h"

namespace braid {
namespace {

std::vector<int64_t> BlocksUpTo(int64_t last) {
  std::vector<int64_t> blocks(static_cast<size_t>(last + 1));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

// Block tables of some sequences; only `blocks`, ascending, of each exist.
class BenchPages {
 public:
  BenchPages(int64_t sequences, int64_t block_bytes, const std::vector<int64_t>& blocks)
      : memory_(sequences * std::ssize(blocks) * block_bytes),
        tables_(static_cast<size_t>(sequences)) {
    std::byte* page = memory_.data();
    for (auto& table : tables_) {
      table.resize(static_cast<size_t>(blocks.back() + 1));
      for (const int64_t block : blocks) {
        table[static_cast<size_t>(block)] = page;
        page += block_bytes;
      }
    }
  }
  // Every block gets the same random content: numbers of about 1, integers of about 32.
  void Fill(DType dtype, int64_t block_bytes) {
    FillFirst(dtype, 0, block_bytes);
    Repeat(block_bytes);
  }
  void FillFirst(DType dtype, int64_t begin, int64_t end) {
    Rng rng(1);
    const int64_t size = SizeOf(dtype);
    for (int64_t at = begin; at < end; at += size) {
      const auto value = static_cast<float>(rng.Normal());
      const uint16_t half = Bf16OfFloat(value);
      const auto integer = static_cast<int8_t>(std::clamp(32 * value, -127.0f, 127.0f));
      const void* from = dtype == DType::kI8     ? static_cast<const void*>(&integer)
                         : dtype == DType::kBF16 ? static_cast<const void*>(&half)
                                                 : &value;
      std::memcpy(memory_.data() + at, from, static_cast<size_t>(size));
    }
  }
  // The first block's content in all the others.
  void Repeat(int64_t block_bytes) {
    for (int64_t at = block_bytes; at < memory_.bytes(); at += block_bytes) {
      std::memcpy(memory_.data() + at, memory_.data(), static_cast<size_t>(block_bytes));
    }
  }
  std::byte* const* table(int64_t s) const { return tables_[static_cast<size_t>(s)].data(); }
  void Move(BenchDevice& device) {
    std::byte* there = memory_.data();
    device.Move(there, memory_.bytes());
    for (auto& table : tables_) {
      for (std::byte*& page : table) {
        if (page != nullptr) page = there + (page - memory_.data());
      }
    }
    memory_ = {};
  }

 private:
  Buffer memory_;
  std::vector<std::vector<std::byte*>> tables_;
};

// Spans of the step for each turn: groups of sequences take turns, so that their pages are cold.
class Turns {
 public:
  Turns(const BenchStep& step, int64_t groups, const BenchPages& pages)
      : step_(step), groups_(groups), spans_(static_cast<size_t>(groups * step.sequences)) {
    for (int64_t s = 0; s < groups * step.sequences; ++s) {
      ops::SequenceSpan& span = spans_[static_cast<size_t>(s)];
      span.token_begin = static_cast<int32_t>(s % step.sequences * step.tokens);
      span.token_count = static_cast<int32_t>(step.tokens);
      span.start = static_cast<int32_t>(step.context);
      span.tables[0] = pages.table(s);
    }
  }
  ops::SequenceIndex At(int64_t turn) const {
    return {spans_.data() + turn % groups_ * step_.sequences, static_cast<int32_t>(step_.sequences),
            static_cast<int32_t>(step_.rows())};
  }
  // After that of the pages.
  void Move(BenchDevice& device) {
    for (int64_t group = 0; group < groups_; ++group) batches_.push_back(device.Lay(At(group)));
  }
  // Of that turn, on the device where the data are.
  ops::OpContext On(ops::OpContext context, int64_t turn) const {
    if (!batches_.empty()) context.batch = &batches_[static_cast<size_t>(turn % groups_)];
    return context;
  }

 private:
  BenchStep step_;
  int64_t groups_;
  std::vector<ops::SequenceSpan> spans_;
  std::vector<ops::DeviceBatch> batches_;  // of the groups, on a device
};

int64_t LastBlock(const BenchStep& step) { return (step.context + step.tokens - 1) / kBlockTokens; }

class AttentionRun : public OpRun {
 public:
  AttentionRun(const ops::AttentionShape& shape, const BenchStep& step, int64_t groups,
               const AttentionRows& rows)
      : shape_(shape),
        rows_(rows),
        block_bytes_(shape.kv_heads * shape.head_bytes()),
        pages_(groups * step.sequences, block_bytes_, BlocksUpTo(LastBlock(step))),
        turns_(step, groups, pages_),
        q_(step.rows(), int64_t{shape.heads} * shape.head_dim),
        raw_(step.rows(), rows.of_layer ? q_.view.cols * (rows.gated ? 2 : 1) : 1),
        kv_(step.rows(), rows.of_layer ? shape.kv_heads * (shape.head_dim + shape.out_dim()) : 1),
        angles_(1, std::max(1, rows.rotary_pairs)),
        out_(step.rows(), shape.heads * shape.out_dim()) {
    pages_.FillFirst(shape.kv_dtype, 0, block_bytes_);
    for (int64_t head = 0; head < shape.kv_heads && shape.kv_dtype == DType::kI8; ++head) {
      const ops::KvPage page = ops::KvPageOf(shape, {}, turns_.At(0).spans[0], 0, head);
      std::fill_n(page.keys.scales, kBlockTokens, 1.0f / 32);
      std::fill_n(page.values.scales, kBlockTokens, 1.0f / 32);
    }
    pages_.Repeat(block_bytes_);
  }
  void Run(const ops::OpContext& context, int64_t turn) override {
    const ops::OpContext on = turns_.On(context, turn);
    if (rows_.of_layer) shape_.latent ? WriteLatent(on, turn) : WriteHeads(on, turn);
    ops::Attention(on, {.shape = shape_,
                        .sequences = turns_.At(turn),
                        .q = q_.view,
                        .scale = 0.0625f,
                        .gate = rows_.gated ? raw_.view.columns(shape_.head_dim,
                                                                q_.view.cols * 2 - shape_.head_dim)
                                            : Matrix{},
                        .gate_stride = rows_.gated ? 2 * int64_t{shape_.head_dim} : 0,
                        .out = out_.view});
  }
  bool Move(BenchDevice& device) override {
    pages_.Move(device);
    turns_.Move(device);
    for (BenchMatrix* matrix : {&q_, &raw_, &kv_, &angles_, &out_}) matrix->Move(device);
    return true;
  }

 private:
  void WriteHeads(const ops::OpContext& on, int64_t turn) {
    const int64_t keys = int64_t{shape_.kv_heads} * shape_.head_dim;
    ops::NormRopeWriteKv(on, {.shape = shape_,
                              .sequences = turns_.At(turn),
                              .q = raw_.view,
                              .q_stride = int64_t{shape_.head_dim} * (rows_.gated ? 2 : 1),
                              .k = kv_.view.columns(0, keys),
                              .v = kv_.view.columns(keys, kv_.view.cols - keys),
                              .q_norm = raw_.view.data,
                              .k_norm = raw_.view.data,
                              .inverse_frequency = angles_.view.data,
                              .rotary_pairs = rows_.rotary_pairs,
                              .q_out = q_.view});
  }
  // Queries are written by the products of the absorbed form.
  void WriteLatent(const ops::OpContext& on, int64_t turn) {
    ops::WriteLatent(on, {.shape = shape_,
                          .sequences = turns_.At(turn),
                          .row = kv_.view.columns(0, shape_.head_dim),
                          .norm = raw_.view.data,
                          .rotation = {angles_.view.data, rows_.rotary_pairs},
                          .q = q_.view,
                          .q_out = q_.view});
  }

  ops::AttentionShape shape_;
  AttentionRows rows_;
  int64_t block_bytes_;
  BenchPages pages_;
  Turns turns_;
  // raw_: queries before their norm, with the gates between them; kv_: keys and values.
  BenchMatrix q_, raw_, kv_, angles_, out_;
};

}  // namespace

std::string BenchStep::Text() const {
  const std::string many = sequences > 1 ? fmt::format("{} sequences, ", sequences) : "";
  return tokens == 1 ? fmt::format("decode, {}context {}", many, context)
                     : fmt::format("prefill, {}{} tokens after {}", many, tokens, context);
}

void AddAttention(std::vector<OpCase>& cases, const ops::AttentionShape& shape, BenchStep step,
                  AttentionRows of) {
  const auto rows = static_cast<double>(step.rows());
  const double keys =
      static_cast<double>(step.context) + (static_cast<double>(step.tokens) + 1) / 2;
  const auto cached = static_cast<double>(step.context + step.tokens);
  const double bytes = static_cast<double>(step.sequences * shape.kv_heads * shape.head_bytes()) *
                       cached / kBlockTokens;
  const int64_t groups = ColdCopies(static_cast<int64_t>(bytes), step.cold_bytes);
  const bool expanded = !shape.latent && shape.value_dim > 0;
  cases.push_back(
      {.family = shape.latent ? "latent"
                 : expanded   ? "expanded"
                              : "attention",
       .name = step.Text(),
       .weights = ops::WeightFormat::kBF16,
       .flops =
           2.0 * rows * keys * shape.heads * static_cast<double>(shape.head_dim + shape.out_dim()),
       .bytes = bytes,
       .part = "attention",
       .make = [=] { return std::make_unique<AttentionRun>(shape, step, groups, of); }});
}

namespace {

// Keys and values of 16 heads from one sequence's latent rows.
class ExpandRun : public OpRun {
 public:
  ExpandRun(const ops::AttentionShape& latent, const ops::AttentionShape& heads, int64_t tokens)
      : latent_(latent),
        heads_(heads),
        rows_(1, latent.head_bytes(), BlocksUpTo(LastBlock({1, 0, tokens}))),
        made_(1, heads.kv_heads * heads.head_bytes(), BlocksUpTo(LastBlock({1, 0, tokens}))),
        from_({1, 0, tokens}, 1, rows_),
        to_({1, 0, tokens}, 1, made_),
        keys_(ops::WeightFormat::kBF16, heads.heads, heads.head_dim - kShared, latent.value_dim),
        values_(ops::WeightFormat::kBF16, heads.heads, heads.value_dim, latent.value_dim) {
    rows_.Fill(latent.kv_dtype, latent.head_bytes());
  }
  void Run(const ops::OpContext& context, int64_t) override {
    ops::ExpandLatent(context, {.shape = latent_,
                                .span = from_.At(0).spans,
                                .cache = {},
                                .keys = &keys_.all,
                                .values = &values_.all,
                                .heads = heads_,
                                .blocks = to_.At(0).spans->tables[0]});
  }

  static constexpr int64_t kShared = 64;  // channels of a key that all heads share

 private:
  ops::AttentionShape latent_, heads_;
  BenchPages rows_, made_;
  Turns from_, to_;
  BenchWeights keys_, values_;
};

void AddExpanded(std::vector<OpCase>& cases, const Machine& machine, ops::AttentionShape latent) {
  const bool bf16 = machine.device.compute == Compute::kBF16;
  if (latent.kv_dtype == DType::kI8) latent.kv_dtype = bf16 ? DType::kBF16 : DType::kF32;
  const ops::AttentionShape heads{.heads = 16,
                                  .kv_heads = 16,
                                  .head_dim = 192,
                                  .kv_dtype = bf16 ? DType::kBF16 : DType::kF32,
                                  .value_dim = 128};
  constexpr int64_t kTokens = 2048;
  const int64_t weights = heads.heads * int64_t{latent.value_dim} *
                          (heads.head_dim - ExpandRun::kShared + heads.value_dim);
  cases.push_back({.family = "expanded",
                   .name = fmt::format("keys and values of {} tokens", kTokens),
                   .weights = ops::WeightFormat::kBF16,
                   .flops = 2.0 * kTokens * static_cast<double>(weights),
                   .bytes = 0,
                   .make = [=] { return std::make_unique<ExpandRun>(latent, heads, kTokens); }});
  AddAttention(cases, heads, {1, 0, kTokens});
  AddAttention(cases, heads, {1, 4096, 512});
}

constexpr ops::LinearAttentionShape kDelta{
    .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .conv_width = 4};

// The last block, and the one before the step where there is one: it holds the state and the inputs
// that the step begins with. Boundaries between them have none, as for a prompt that is not shared.
std::vector<int64_t> StateBlocks(const BenchStep& step) {
  const int64_t last = LastBlock(step);
  if (step.context < kBlockTokens) return {last};
  return {step.context / kBlockTokens - 1, last};
}

class ConvRun : public OpRun {
 public:
  ConvRun(const ops::LinearAttentionShape& shape, const BenchStep& step)
      : shape_(shape),
        pages_(step.sequences, ops::StateBlockBytes(shape), StateBlocks(step)),
        turns_(step, 1, pages_),
        x_(step.rows(), shape.conv_channels()),
        weight_(shape.conv_width, shape.conv_channels()),
        out_(step.rows(), shape.conv_channels()) {
    pages_.Fill(DType::kF32, ops::StateBlockBytes(shape));
  }
  void Run(const ops::OpContext& context, int64_t turn) override {
    ops::CausalConv(turns_.On(context, turn), {.shape = shape_,
                                               .sequences = turns_.At(turn),
                                               .cache = {},
                                               .x = x_.view,
                                               .weight = weight_.view.data,
                                               .out = out_.view});
  }
  bool Move(BenchDevice& device) override {
    pages_.Move(device);
    turns_.Move(device);
    for (BenchMatrix* matrix : {&x_, &weight_, &out_}) matrix->Move(device);
    return true;
  }

 private:
  ops::LinearAttentionShape shape_;
  BenchPages pages_;
  Turns turns_;
  BenchMatrix x_, weight_, out_;
};

void AddConv(std::vector<OpCase>& cases, BenchStep step) {
  const int64_t channels = kDelta.conv_channels();
  cases.push_back({.family = "conv",
                   .name = fmt::format("{} channels, {}", channels, step.Text()),
                   .bytes = 8.0 * static_cast<double>(step.rows() * channels),
                   .source = step.rows() * channels < (1 << 22) ? Source::kCaches : Source::kMemory,
                   .make = [=] { return std::make_unique<ConvRun>(kDelta, step); }});
}

class LinearAttentionRun : public OpRun {
 public:
  LinearAttentionRun(const ops::LinearAttentionShape& shape, const ops::LinearAttentionRule& rule,
                     const BenchStep& step, int64_t groups)
      : shape_(shape),
        rule_(rule),
        pages_(groups * step.sequences, ops::StateBlockBytes(shape), StateBlocks(step)),
        turns_(step, groups, pages_),
        qkv_(step.rows(), shape.conv_channels()),
        gates_(step.rows(), shape.value_heads * shape.decay_width()),
        betas_(step.rows(), shape.value_heads),
        per_head_(3, shape.value_heads * shape.decay_width()),
        out_(step.rows(), int64_t{shape.value_heads} * shape.value_dim) {
    const int64_t bytes = ops::StateBlockBytes(shape);
    pages_.FillFirst(DType::kF32, 0, bytes);
    for (int64_t head = 0; head < shape.value_heads; ++head) {
      const int64_t area = head * shape.head_bytes();
      pages_.FillFirst(shape.state_dtype, area, area + shape.scales_offset());
    }
    pages_.Repeat(bytes);
  }
  void Run(const ops::OpContext& context, int64_t turn) override {
    ops::LinearAttentionStep(turns_.On(context, turn), {.shape = shape_,
                                                        .sequences = turns_.At(turn),
                                                        .rule = rule_,
                                                        .qkv = qkv_.view,
                                                        .a = gates_.view,
                                                        .b = betas_.view,
                                                        .a_log = per_head_.view.row(0),
                                                        .dt_bias = per_head_.view.row(1),
                                                        .constant = per_head_.view.row(2),
                                                        .out = out_.view});
  }
  bool Move(BenchDevice& device) override {
    pages_.Move(device);
    turns_.Move(device);
    for (BenchMatrix* m : {&qkv_, &gates_, &betas_, &per_head_, &out_}) m->Move(device);
    return true;
  }

 private:
  ops::LinearAttentionShape shape_;
  ops::LinearAttentionRule rule_;
  BenchPages pages_;
  Turns turns_;
  BenchMatrix qkv_, gates_, betas_, per_head_, out_;
};

}  // namespace

void AddLinearAttention(std::vector<OpCase>& cases, const ops::LinearAttentionShape& shape,
                        const ops::LinearAttentionRule& rule, BenchStep step) {
  const double state = static_cast<double>(shape.value_heads) * shape.key_dim * shape.value_dim;
  // As CostsOf(LinearAttention): the state is met three times, the chunk's rows half on average.
  const double within = static_cast<double>(shape.value_heads) * kBlockTokens / 2 *
                        (4.0 * shape.key_dim + 4.0 * shape.value_dim);
  // Read once; where the step completes a chunk also written. Rows of the chunk in progress.
  const double rows_so_far =
      static_cast<double>(step.context % kBlockTokens) * static_cast<double>(shape.value_heads) *
      static_cast<double>(shape.key_dim + shape.value_dim + shape.decay_width());
  const double bytes = static_cast<double>(SizeOf(shape.state_dtype) * step.sequences) *
                       (state * (step.tokens > 1 ? 2 : 1) + rows_so_far);
  const int64_t groups = ColdCopies(
      step.sequences * ops::StateBlockBytes(shape) * (step.tokens > 1 ? 8 : 2), step.cold_bytes);
  cases.push_back(
      {.family = "linear_attention",
       .name = step.Text() + (shape.channel_decay ? ", decay per channel" : ""),
       .weights = ops::WeightFormat::kBF16,
       .flops = static_cast<double>(step.rows()) * (6 * state + within),
       .bytes = bytes,
       .part = "linear attention",
       .make = [=] { return std::make_unique<LinearAttentionRun>(shape, rule, step, groups); }});
}

std::unique_ptr<OpRun> MakeConvRun(const ops::LinearAttentionShape& shape, const BenchStep& step) {
  return std::make_unique<ConvRun>(shape, step);
}

void AddMixerCases(const Machine& machine, std::vector<OpCase>& cases) {
  const ops::AttentionShape grouped{
      .heads = 16, .kv_heads = 2, .head_dim = 256, .kv_dtype = machine.kv_dtype};
  const ops::AttentionShape latent{.heads = 16,
                                   .kv_heads = 1,
                                   .head_dim = 576,
                                   .kv_dtype = machine.kv_dtype,
                                   .value_dim = 512,
                                   .latent = true};
  for (const ops::AttentionShape& shape : {grouped, latent}) {
    AddAttention(cases, shape, {1, 4096, 1});
    AddAttention(cases, shape, {1, 32768, 1});
    AddAttention(cases, shape, {8, 4096, 1});
    AddAttention(cases, shape, {1, 0, 2048});
    AddAttention(cases, shape, {1, 4096, 512});
    AddAttention(cases, shape, {1, 32768, 128});
  }
  AddExpanded(cases, machine, latent);
  AddConv(cases, {1, 4096 + 32, 1});
  AddConv(cases, {32, 4096 + 32, 1});
  AddConv(cases, {1, 0, 2048});
  ops::LinearAttentionShape linear = kDelta;
  linear.state_dtype = machine.state_dtype;
  for (const bool channel_decay : {false, true}) {
    linear.channel_decay = channel_decay;
    AddLinearAttention(cases, linear, {}, {1, 4096 + 32, 1});
    AddLinearAttention(cases, linear, {}, {8, 4096 + 32, 1});
    AddLinearAttention(cases, linear, {}, {1, 0, 2048});
  }
  linear.channel_decay = false;
  // The cost of a token does not grow with what came before it.
  for (const int64_t context : {32768, 262144}) {
    AddLinearAttention(cases, linear, {}, {1, context + 32, 1});
    AddLinearAttention(cases, linear, {}, {1, context, 2048});
  }
}

}  // namespace braid
