// Where batches are cut, that halves follow each other through the layers, and when they pay.
#include "runtime/halves/half_batches.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <numeric>
#include <semaphore>
#include <span>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "comm/thread_group.h"
#include "ops/testing/test_context.h"
#include "runtime/halves/overlap_choice.h"
#include "runtime/rank_results.h"

namespace braid {
namespace {

CacheGeometry Geometry() {
  return {.groups = {{.name = "attention", .kind = GroupKind::kFull, .block_bytes = 64},
                     {.name = "state", .kind = GroupKind::kState, .block_bytes = 64}}};
}

// Sequences of some tokens each, whose tables have a block for the end alone.
struct Batch {
  explicit Batch(const std::vector<std::pair<int32_t, int32_t>>& of) : tables(of.size()) {
    for (size_t i = 0; i < of.size(); ++i) {
      const auto [start, count] = of[i];
      const int32_t end = start + count;
      tables[i].assign(static_cast<size_t>(end / kBlockTokens + 2), nullptr);
      tables[i][static_cast<size_t>(end / kBlockTokens)] = &block;
      spans.push_back({tokens, count, start, {}});
      spans.back().tables[0] = tables[i].data();
      spans.back().tables[1] = tables[i].data();
      tokens += count;
    }
  }
  ops::SequenceIndex index() const {
    return {spans.data(), static_cast<int32_t>(spans.size()), tokens};
  }
  std::vector<std::vector<std::byte*>> tables;
  std::vector<ops::SequenceSpan> spans;
  int32_t tokens = 0;
  std::byte block = {};
};

TEST(HalfBatches, HaveEveryTokenOnceAndTheSecondNeverMore) {
  const CacheGeometry cache = Geometry();
  std::byte scratch = {};
  CutRule rule{.cache = &cache, .scratch = {nullptr, &scratch}};
  Rng rng(1);
  CutBatch cut;
  for (int turn = 0; turn < 2000; ++turn) {
    rule.inside = turn % 4 != 0;
    std::vector<std::pair<int32_t, int32_t>> of(static_cast<size_t>(rng.Below(6)));
    for (auto& [start, count] : of) {
      start = static_cast<int32_t>(rng.Below(300));
      count = 1 + static_cast<int32_t>(rng.Below(rng.Below(2) == 0 ? 4 : 400));
    }
    const Batch batch(of);
    CutInHalves(batch.index(), rule, cut);
    ASSERT_EQ(cut.tokens[0] + cut.tokens[1], batch.tokens);
    ASSERT_LE(cut.tokens[1], batch.tokens / 2);
    // One after the other they are the sequences again.
    std::vector<ops::SequenceSpan> joined = cut.spans[0];
    for (ops::SequenceSpan span : cut.spans[1]) {
      span.token_begin += cut.tokens[0];
      if (!joined.empty() && span.start > 0 &&
          joined.back().tables[0] == span.tables[0]) {  // of the same sequence
        ASSERT_TRUE(rule.inside);
        ASSERT_EQ(span.start % kBlockTokens, 0);
        ASSERT_EQ(span.start, joined.back().start + joined.back().token_count);
        const auto before = static_cast<size_t>(span.start / kBlockTokens - 1);
        ASSERT_NE(span.tables[1][before], nullptr);
        ASSERT_EQ(span.tables[1], joined.back().tables[1]);
        ASSERT_EQ(span.tables[1][static_cast<size_t>((span.start + span.token_count) / 64)],
                  &batch.block);
        joined.back().token_count += span.token_count;
      } else {
        joined.push_back(span);
      }
    }
    ASSERT_EQ(joined.size(), of.size());
    for (size_t i = 0; i < joined.size(); ++i) {
      ASSERT_EQ(joined[i].token_begin, batch.spans[i].token_begin);
      ASSERT_EQ(joined[i].token_count, of[i].second);
      ASSERT_EQ(joined[i].start, of[i].first);
    }
  }
}

TEST(HalfBatches, CutALongPromptInTheMiddle) {
  const CacheGeometry cache = Geometry();
  std::byte scratch = {};
  CutBatch cut;
  const Batch batch({{0, 1000}});
  CutInHalves(batch.index(), {.cache = &cache, .scratch = {nullptr, &scratch}}, cut);
  EXPECT_EQ(cut.tokens[0], 512);
  EXPECT_EQ(cut.spans[1][0].start, 512);
  EXPECT_EQ(cut.spans[1][0].tables[1][7], &scratch);
}

// What an order of the layers has seen.
struct Seen {
  std::vector<std::pair<int, int32_t>> mixers;  // half, layer
  std::vector<int64_t> sums;
};

// Two ranks of which one is slower to answer: each layer adds what both ranks have.
TEST(HalfBatches, TheSecondNeverOvertakesTheFirst) {
  constexpr int32_t kLayers = 20;
  const std::chrono::seconds deadline(60);
  ThreadGroup first(2, deadline), second(2, deadline), alone(2, deadline);
  const CacheGeometry cache = Geometry();
  const ModelSpec spec;
  std::vector<Seen> seen(2);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ops::TestContext test(Isa::kBase);
      const auto groups = [rank](ThreadGroup& group) {
        return ops::Ranks{.tensor = &group.rank(rank),
                          .experts = &group.rank(rank),
                          .all = &group.rank(rank),
                          .status = {}};
      };
      HalfBatches halves({.cache = cache,
                          .pool = test.pool,
                          .groups = {groups(first), groups(second)},
                          .workspace_bytes = 64,
                          .spec = spec});
      ops::Ranks ranks = groups(alone);
      test.context.ranks = &ranks;
      const Batch batch({{0, 4}, {0, 4}});
      Seen& here = seen[static_cast<size_t>(rank)];
      const Status status =
          halves.Run(test.context, batch.index(), [&](const HalfBatches::Half& half) {
            EXPECT_EQ(half.sequences.tokens, 4);
            int64_t sum = half.begin + rank;
            for (int32_t layer = 0; layer < kLayers; ++layer) {
              half.watch.BeforeMixer(layer);
              here.mixers.emplace_back(half.begin > 0, layer);
              half.watch.AfterMixer(layer);
              // The first half has further to go at times.
              for (int turn = 0; turn < (half.begin == 0 ? 1 + layer % 3 : 1); ++turn) {
                std::vector<int64_t> all(2);
                const Status gathered = half.context.ranks->tensor->AllGather(
                    std::as_bytes(std::span(&sum, 1)), std::as_writable_bytes(std::span(all)));
                ASSERT_TRUE(gathered.ok());
                if (turn == 0) sum = all[0] + all[1];
              }
            }
            here.sums.push_back(sum);
          });
      EXPECT_TRUE(status.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Seen& here : seen) {
    ASSERT_EQ(here.mixers.size(), 2 * static_cast<size_t>(kLayers));
    int32_t reached[2] = {0, 0};
    for (const auto& [half, layer] : here.mixers) {
      EXPECT_EQ(layer, reached[half]++);
      EXPECT_LE(reached[1], reached[0]);
    }
    std::vector<int64_t> sums = here.sums;
    std::ranges::sort(sums);
    // 0 + 1 and 4 + 5, doubled by each further layer.
    EXPECT_EQ(sums,
              (std::vector<int64_t>{int64_t{1} << (kLayers - 1), int64_t{9} << (kLayers - 1)}));
  }
}

// A rank's messages that arrive when the other half has computed.
class ArrivesLater final : public Communicator {
 public:
  explicit ArrivesLater(std::binary_semaphore& computed)
      : Communicator(0, 2), computed_(computed) {}
  bool in_time = false;

 private:
  Status Exchange(std::span<const Bytes>, std::span<const MutableBytes>) override {
    in_time = computed_.try_acquire_for(std::chrono::seconds(60));
    return {};
  }
  std::binary_semaphore& computed_;
};

TEST(HalfBatches, OneComputesWhileTheOtherWaitsForMessages) {
  std::binary_semaphore computed(0);
  ArrivesLater slow(computed);
  ThreadGroup alone(1, std::chrono::seconds(60));
  ops::TestContext test(Isa::kBase);
  const CacheGeometry cache = Geometry();
  const ModelSpec spec;
  const auto groups = [](Communicator& group) {
    return ops::Ranks{.tensor = &group, .experts = &group, .all = &group, .status = {}};
  };
  HalfBatches halves({.cache = cache,
                      .pool = test.pool,
                      .groups = {groups(slow), groups(alone.rank(0))},
                      .workspace_bytes = 64,
                      .spec = spec});
  ops::Ranks ranks = groups(slow);
  test.context.ranks = &ranks;
  const Batch batch({{0, 4}, {0, 4}});
  const Status status = halves.Run(test.context, batch.index(), [&](const HalfBatches::Half& half) {
    half.watch.BeforeMixer(0);
    half.watch.AfterMixer(0);
    if (half.begin > 0) return computed.release();
    EXPECT_TRUE(half.context.ranks->tensor->Barrier().ok());
  });
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(slow.in_time);
}

TEST(HalfBatches, SendRowsInTheFormOfTheStep) {
  ThreadGroup alone(1, std::chrono::seconds(60));
  ops::TestContext test(Isa::kBase);
  const CacheGeometry cache = Geometry();
  const ModelSpec spec;
  Communicator& group = alone.rank(0);
  ops::Ranks ranks{.tensor = &group, .experts = &group, .all = &group, .status = {}};
  HalfBatches halves({.cache = cache,
                      .pool = test.pool,
                      .groups = {ranks, ranks},
                      .workspace_bytes = 64,
                      .spec = spec});
  test.context.ranks = &ranks;
  const Batch batch({{0, 4}, {0, 4}});
  for (const int64_t parcel_rows : {5, 0}) {
    ranks.parcel_rows = parcel_rows;
    ranks.sums = parcel_rows > 0;
    std::array<ops::Ranks, 2> seen;
    const Status status = halves.Run(test.context, batch.index(), [&](const auto& half) {
      half.watch.BeforeMixer(0);
      half.watch.AfterMixer(0);
      seen[half.begin > 0 ? 1 : 0] = *half.context.ranks;
    });
    EXPECT_TRUE(status.ok());
    for (const ops::Ranks& of_half : seen) {
      EXPECT_EQ(of_half.parcel_rows, parcel_rows);
      EXPECT_EQ(of_half.sums, parcel_rows > 0);
    }
  }
}

TEST(HalfBatches, TellWhatHasEndedAGroup) {
  ThreadGroup first(2, std::chrono::milliseconds(50)), second(2, std::chrono::milliseconds(50));
  ops::TestContext test(Isa::kBase);
  const CacheGeometry cache = Geometry();
  const ModelSpec spec;
  const auto groups = [](ThreadGroup& group) {
    return ops::Ranks{
        .tensor = &group.rank(0), .experts = &group.rank(0), .all = &group.rank(0), .status = {}};
  };
  HalfBatches halves({.cache = cache,
                      .pool = test.pool,
                      .groups = {groups(first), groups(second)},
                      .workspace_bytes = 64,
                      .spec = spec});
  ops::Ranks ranks = groups(first);
  test.context.ranks = &ranks;
  const Batch batch({{0, 4}, {0, 4}});
  const Status status = halves.Run(test.context, batch.index(), [&](const HalfBatches::Half& half) {
    half.watch.BeforeMixer(0);
    half.watch.AfterMixer(0);
    if (half.begin > 0) half.context.ranks->status = half.context.ranks->tensor->Barrier();
  });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "no word from rank 1 within 50 ms");
}

TEST(OverlapRule, CutsWhereMessagesCostMoreThanReadingTheWeightsAgain) {
  OverlapRule slow_link;
  EXPECT_EQ(slow_link.tokens_least(), 0);
  for (int i = 0; i < 20; ++i) {
    slow_link.Add(4, 0.011, 0.001);     // 10 ms for the weights
    slow_link.Add(1000, 0.310, 0.200);  // 100 us a token, and 200 us for its messages
  }
  // 1.05 * 10 ms / (0.95 * 200 us - 0.05 * 100 us) is 57.
  EXPECT_EQ(slow_link.tokens_least(), 128);
  OverlapRule link;
  for (int i = 0; i < 20; ++i) {
    link.Add(4, 0.011, 0.001);
    link.Add(1000, 0.130, 0.020);
  }
  EXPECT_NEAR(link.tokens_least(), 1.05 * 0.010 / (0.95 * 20e-6 - 0.05 * 100e-6), 2);
  OverlapRule memory;
  for (int i = 0; i < 20; ++i) memory.Add(1000, 0.110, 0.001);
  EXPECT_EQ(memory.tokens_least(), 0);
}

// Steps of few tokens tell what reading the weights takes, steps of many what their tokens take.
TEST(OverlapRule, CountsStepsByTheirTokens) {
  const auto least = [](int32_t few, int32_t many) {
    OverlapRule rule;
    rule.Add(few, 0.05, 0);
    rule.Add(many, 0.05 + many * 300e-6, many * 200e-6);
    return rule.tokens_least();
  };
  // 1.05 * 50 ms / (0.95 * 200 us - 0.05 * 100 us)
  EXPECT_NEAR(least(16, 64), 284, 1);
  EXPECT_NEAR(least(1, 4000), 284, 1);
  EXPECT_EQ(least(16, 63), 0) << "neither few nor many";
  EXPECT_EQ(least(17, 64), 128) << "nothing is known of the weights";
  EXPECT_EQ(least(0, 64), 128);
}

TEST(OverlapRule, FollowsWhatStepsTakeNow) {
  OverlapRule rule;
  rule.Add(4, 0.05, 0);
  rule.Add(1000, 0.35, 0.2);
  const int32_t before = rule.tokens_least();
  rule.Add(4, 0.09, 0);  // a quarter of the difference counts: 60 ms
  EXPECT_NEAR(rule.tokens_least(), before * 1.2, 2);
  // Beside the weights' 60 ms tokens take 1 ms now, and wait for 100 us: a quarter counts again.
  rule.Add(1000, 0.06 + 1 + 0.1, 0.1);
  EXPECT_NEAR(rule.tokens_least(), 1.05 * 0.06 / (0.95 * 175e-6 - 0.05 * 325e-6), 2);
  for (int i = 0; i < 60; ++i) rule.Add(1000, 0.2, 0.001);
  EXPECT_EQ(rule.tokens_least(), 0) << "messages cost nothing now";
}

// A step that does little but wait for messages.
TEST(OverlapChoice, MeasuresWhatAStepWaits) {
  class Waits final : public Communicator {
   public:
    Waits() : Communicator(0, 2) {}

   private:
    Status Exchange(std::span<const Bytes>, std::span<const MutableBytes>) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return {};
    }
  };
  Waits tensor, experts;
  ops::Ranks ranks{.tensor = &tensor, .experts = &experts, .all = &tensor, .status = {}};
  const auto least = [&](Overlap overlap, bool lost) {
    OverlapChoice choice(overlap);
    ranks.status = lost ? Status(Error{ErrorCode::kUnavailable, "lost"}) : Status();
    {
      const OverlapChoice::Measured measured(choice, ranks, 1000);
      EXPECT_TRUE(tensor.Barrier().ok());
      EXPECT_TRUE(experts.Barrier().ok());
    }
    return choice.tokens_least();
  };
  EXPECT_EQ(least(Overlap::kAuto, false), 128) << "the step has waited for the most part";
  EXPECT_EQ(least(Overlap::kAuto, true), 0) << "after an error nothing counts";
  EXPECT_EQ(least(Overlap::kOn, false), 0) << "nobody asks";
}

TEST(OverlapChoice, FollowsTheFirstRank) {
  OverlapChoice choice(Overlap::kAuto);
  EXPECT_FALSE(choice.Cuts(4000));
  choice.Agree(500);
  EXPECT_FALSE(choice.Cuts(499));
  int cut = 0;
  for (int i = 0; i < 640; ++i) cut += choice.Cuts(500) ? 1 : 0;
  EXPECT_EQ(cut, 630);  // every 64th shows what it takes
  EXPECT_FALSE(OverlapChoice(Overlap::kOff).Cuts(4000));
  EXPECT_FALSE(choice.Cuts(499)) << "and steps of fewer tokens do not count";
  choice.Agree(0);
  EXPECT_FALSE(choice.Cuts(4000)) << "with no number of tokens";
  EXPECT_TRUE(OverlapChoice(Overlap::kOn).Cuts(2));
  EXPECT_FALSE(OverlapChoice(Overlap::kOn).Cuts(1)) << "nothing to cut";
}

TEST(OverlapChoice, IsToldWhatTheFirstRankHasMeasured) {
  ThreadGroup group(2, std::chrono::seconds(60));
  std::vector<int32_t> told(2);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ResultExchange exchange;
      StepDone out;
      EXPECT_TRUE(
          exchange.Share(group.rank(rank), rank == 0, {.halves_from = 500 + rank}, 0, out).ok());
      told[static_cast<size_t>(rank)] = exchange.halves_from();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, std::vector<int32_t>(2, 500));
}

}  // namespace
}  // namespace braid
