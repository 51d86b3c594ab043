// The recurrence on a device: what differs between its kernels. Which of them has a row depends on
// the rows of its sequence in a step; the row's bits do not.
#include <gtest/gtest.h>

#include "ops/testing/test_linear_attention.h"
#include "ops/testing/test_rewind.h"
#include "ops/vulkan/test_device.h"

namespace braid::ops {
namespace {

class VulkanRecurrence : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Shared().device == nullptr) GTEST_SKIP() << Shared().why;
  }
  TestDevice& device() { return *Shared().device; }
  TestContext base_{Isa::kBase};

 private:
  struct Opened {
    std::string why;
    std::unique_ptr<TestDevice> device = TestDevice::Open(&why);
  };
  static const Opened& Shared() {
    static const auto* const kOpened = new Opened;
    return *kOpened;
  }
};

bool SameRows(const OwnedMatrix& a, int64_t a_first, const OwnedMatrix& b, int64_t b_first,
              int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    if (!SameBits(a.view.row(a_first + r), b.view.row(b_first + r), a.view.cols)) return false;
  }
  return true;
}

// Keys of more than 128 channels are summed by twice as many sums as invocations have turns; values
// of 33 and 72 channels leave a workgroup one column and eight.
constexpr LinearAttentionCase kCases[] = {
    {{1, 1, 256, 33, 2}, {}},        {{1, 2, 148, 72, 4}, {}},
    {{1, 1, 256, 40, 2, true}, {}},  {{1, 2, 148, 24, 4, true}, kBounded},
    {{2, 4, 32, 32, 1}, kLightning}, {{2, 2, 20, 24, 4, true}, {}},
    {{1, 3, 36, 64, 2}, {}}};

TEST_F(VulkanRecurrence, AnyCutOfASequenceGivesTheBitsOfTheWhole) {
  std::vector<int64_t> every(140);
  for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<int64_t>(i) + 1;
  for (const LinearAttentionCase& c : kCases) {
    const LinearAttentionLayer layer(c, 141, 0.5);
    const LinearAttentionPass expected(base_.context, layer, {});
    const LinearAttentionPass whole(device(), layer, {});
    EXPECT_LT(RelativeError(whole.out.view, expected.out.view), 2e-5) << "dk " << c.shape.key_dim;
    // Steps of up to four rows and of more; those that complete a chunk, and those that begin one.
    for (const std::vector<int64_t>& cuts : {every,
                                             {4, 8, 13, 60, 64, 68, 73, 77, 124, 127, 129, 133},
                                             {5, 62, 66, 70, 128, 130},
                                             {61, 63, 64, 65, 127, 128, 132, 136, 140}}) {
      const LinearAttentionPass cut(device(), layer, cuts);
      EXPECT_TRUE(SameRows(whole.out, 0, cut.out, 0, 141))
          << "dk " << c.shape.key_dim << " first cut " << cuts.front();
    }
  }
}

TEST_F(VulkanRecurrence, ALongSequenceTakesSeveralRuns) {
  constexpr int64_t kTokens = 64 * 35 + 7;
  for (bool channel_decay : {false, true}) {
    const LinearAttentionLayer layer(LinearAttentionShape{1, 1, 16, 16, 4, channel_decay}, kTokens);
    const LinearAttentionPass expected(base_.context, layer, {});
    const LinearAttentionPass cut(device(), layer, {64 * 3 + 2, 64 * 20, 64 * 34 + 5});
    LinearAttentionPass holes(device(), layer, {kTokens});
    for (int64_t chunk = 0; chunk < 34; ++chunk) holes.pages.MakeHole(chunk);
    holes.pages.Spoil();
    holes.Step(device(), layer, 0, kTokens);
    EXPECT_LT(RelativeError(holes.out.view, expected.out.view), 2e-5);
    EXPECT_TRUE(SameRows(holes.out, 0, cut.out, 0, kTokens));
  }
}

struct Part {
  int64_t start, count;
};
// Parts of one sequence, as sequences of one step.
struct Parts {
  Parts(const std::vector<Part>& parts, const LinearAttentionLayer& layer, int64_t tokens)
      : x(tokens, layer.x.view.cols), a(tokens, layer.a.view.cols), b(tokens, layer.b.view.cols) {
    int64_t to = 0;
    for (const Part& part : parts) {
      spans.push_back({static_cast<int32_t>(to),
                       static_cast<int32_t>(part.count),
                       static_cast<int32_t>(part.start),
                       {}});
      for (int64_t t = part.start; t < part.start + part.count; ++t, ++to) {
        std::copy_n(layer.x.view.row(t), x.view.cols, x.view.row(to));
        std::copy_n(layer.a.view.row(t), a.view.cols, a.view.row(to));
        std::copy_n(layer.b.view.row(t), b.view.cols, b.view.row(to));
      }
    }
  }
  std::vector<SequenceSpan> spans;
  OwnedMatrix x, a, b;
};

TEST_F(VulkanRecurrence, ASequencesBitsDoNotDependOnTheSequencesBesideIt) {
  // Steps of few rows lie before, between and behind longer ones; pages of the longest are holes.
  const std::vector<std::vector<Part>> batches = {
      {{3, 1}, {70, 4}, {0, 200}, {62, 1}, {63, 1}, {64, 130}, {5, 70}, {61, 3}, {60, 4}, {9, 2}},
      {{63, 1}, {127, 1}, {191, 1}, {3, 1}, {62, 2}},
      {{0, 64}, {64, 64}, {0, 128}, {1, 1}, {1, 130}, {0, 210}}};
  constexpr int64_t kTokens = 210;
  for (const LinearAttentionCase& c : {LinearAttentionCase{{2, 4, 24, 40, 4}, {}},
                                       LinearAttentionCase{{4, 72, 8, 4, 2, true}, kBounded}}) {
    const LinearAttentionLayer layer(c, kTokens, 0.5);
    const LinearAttentionPass alone(device(), layer, {});
    for (const std::vector<Part>& parts : batches) {
      int64_t tokens = 0;
      for (const Part& part : parts) tokens += part.count;
      Parts step(parts, layer, tokens);
      std::vector<std::unique_ptr<LinearAttentionPass>> passes;
      for (size_t s = 0; s < parts.size(); ++s) {
        passes.push_back(std::make_unique<LinearAttentionPass>(layer));
        passes.back()->Step(device(), layer, 0, parts[s].start);
        const int64_t end = parts[s].start + parts[s].count;
        for (int64_t chunk = CeilDiv(parts[s].start, kBlockTokens); chunk + 1 < end / kBlockTokens;
             ++chunk) {
          passes.back()->pages.MakeHole(chunk);
        }
        step.spans[s].tables[0] = passes.back()->pages.table();
      }
      const SequenceIndex index{step.spans.data(), static_cast<int32_t>(parts.size()),
                                static_cast<int32_t>(tokens)};
      OwnedMatrix convolved(tokens, step.x.view.cols), out(tokens, alone.out.view.cols);
      CausalConv(device(), {.shape = c.shape,
                            .sequences = index,
                            .x = step.x.view,
                            .weight = layer.conv.view.data,
                            .out = convolved.view});
      LinearAttentionStep(device(), {.shape = c.shape,
                                     .sequences = index,
                                     .rule = c.rule,
                                     .qkv = convolved.view,
                                     .a = step.a.view,
                                     .b = step.b.view,
                                     .a_log = layer.a_log.view.data,
                                     .dt_bias = layer.dt_bias.view.data,
                                     .constant = layer.constant.view.data,
                                     .out = out.view});
      for (size_t s = 0; s < parts.size(); ++s) {
        EXPECT_TRUE(
            SameRows(out, step.spans[s].token_begin, alone.out, parts[s].start, parts[s].count))
            << "sequence " << s << " of " << parts.size();
        // What it has left in its pages.
        const int64_t next = parts[s].start + parts[s].count;
        const int64_t rows = std::min<int64_t>(kTokens - next, 2);
        passes[s]->Step(device(), layer, next, next + rows);
        EXPECT_TRUE(SameRows(passes[s]->out, next, alone.out, next, rows))
            << "behind sequence " << s << " of " << parts.size();
      }
    }
  }
}

TEST_F(VulkanRecurrence, WrongDraftsLeaveNoTrace) {
  constexpr int64_t kTokens = 150;
  for (int32_t drafts : {1, 3, 7}) {
    for (LinearAttentionCase c : {kCases[1], kCases[5]}) {
      c.shape.drafts_max = drafts;
      const LinearAttentionLayer layer(c, kTokens, 0.5);
      const LinearAttentionPass whole(device(), layer, {});
      LinearAttentionPass run(device(), layer, {kTokens});
      run.pages.Spoil();
      LinearAttentionLayer guessed(layer);
      Rng rng(static_cast<uint64_t>(drafts));
      for (const DraftRow& row : DraftRows(rng, kTokens, 41, drafts)) {
        for (const OwnedMatrix* m : {&guessed.x, &guessed.a, &guessed.b}) {
          Mislead(rng, row, m->view);
        }
        run.Step(device(), guessed, row.begin, row.end);
        Restore(row, layer.x.view, guessed.x.view);
        Restore(row, layer.a.view, guessed.a.view);
        Restore(row, layer.b.view, guessed.b.view);
      }
      EXPECT_TRUE(SameRows(whole.out, 0, run.out, 0, kTokens)) << drafts << " drafts";
    }
  }
}

TEST_F(VulkanRecurrence, StatePagesThatNobodyAskedForMayBeHoles) {
  const LinearAttentionLayer layer(LinearAttentionShape{2, 6, 24, 40, 4}, 203);
  const LinearAttentionPass whole(device(), layer, {});
  LinearAttentionPass holes(device(), layer, {203});
  holes.pages.MakeHole(0);
  holes.pages.MakeHole(1);
  holes.Step(device(), layer, 0, 203);
  EXPECT_TRUE(SameBits(whole.out.values.data(), holes.out.values.data(),
                       static_cast<int64_t>(whole.out.values.size())));
}

TEST_F(VulkanRecurrence, WrongDraftsOfALongSequenceLeaveNoTrace) {
  constexpr int64_t kTokens = 150;
  const int32_t drafts = 3;
  LinearAttentionCase c = kLinearAttentionCases[2];
  c.shape.drafts_max = drafts;
  const LinearAttentionLayer layer(c, kTokens, 0.5);
  const LinearAttentionPass whole(device(), layer, {});
  LinearAttentionPass run(device(), layer, {kTokens});
  run.pages.Spoil();
  LinearAttentionLayer guessed(layer);
  Rng rng(3);
  for (const DraftRow& row : DraftRows(rng, kTokens, 41, drafts)) {
    for (const OwnedMatrix* m : {&guessed.x, &guessed.a, &guessed.b}) Mislead(rng, row, m->view);
    run.Step(device(), guessed, row.begin, row.end);
    Restore(row, layer.x.view, guessed.x.view);
    Restore(row, layer.a.view, guessed.a.view);
    Restore(row, layer.b.view, guessed.b.view);
  }
  EXPECT_TRUE(SameBits(whole.out.values.data(), run.out.values.data(),
                       static_cast<int64_t>(whole.out.values.size())));
}

}  // namespace
}  // namespace braid::ops
