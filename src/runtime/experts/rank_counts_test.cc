// Whose rows a rank computed, while experts go from one rank to another.
#include "runtime/experts/rank_counts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "runtime/rank_groups.h"

namespace braid {
namespace {

// Four ranks, of which two share two experts of layer 1.
constexpr ExpertShape kShape{.experts = 2, .redundant = 0, .ranks = 2, .ranks_per_node = 2};
const std::vector<int32_t> kInOrder = {0, 1, 0, 1}, kExchanged = {1, 0, 1, 0};

TEST(RankCounts, RowsCountWhereTheExpertLiesInTheirStep) {
  ThreadRanks groups({.dp = 4, .ep = 2}, std::chrono::seconds(60));
  std::vector<RankRows> windows;
  RankRows hundred, thousand;
  // All tokens choose expert 0; rank r has r + 1 of them in each pass. Experts are exchanged after
  // the fourth pass, and go back after the thirteenth, in the second group only.
  const auto count = [&](int32_t rank) {
    ops::Ranks ranks = groups.Of(rank);
    ExpertRecorder recorder({.model = "m", .experts = 2, .top_k = 1, .layers = {1}});
    RankCounts counts(recorder, ranks);
    counts.SetChoices(0, kShape, kInOrder);
    for (int pass = 1; pass <= 1010; ++pass) {
      recorder.Count(1, std::vector<int32_t>(static_cast<size_t>(rank) + 1, 0));
      const Result<bool> complete = counts.EndPass(10);
      ASSERT_TRUE(complete) << complete.error().message;
      ASSERT_EQ(*complete, rank == 0 && pass % 10 == 0);
      if (*complete) {
        windows.push_back(counts.last(0));
        EXPECT_EQ(counts.sum()[0], 100);
        EXPECT_EQ(counts.sum()[1], 0);
        EXPECT_EQ(counts.last(1).rows.empty(), pass < 100);
        EXPECT_EQ(counts.last(2).rows.empty(), pass < 1000);
        if (pass == 190) hundred = counts.last(1);
        if (pass == 1010) thousand = counts.last(2);
      }
      if (pass == 4) counts.SetChoices(0, kShape, kExchanged);
      if (pass == 13 && rank >= 2) counts.SetChoices(0, kShape, kInOrder);
    }
  };
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 4; ++rank) threads.emplace_back(count, rank);
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(windows.size(), 101u);
  EXPECT_EQ(windows[0].layers, std::vector<int32_t>{1});
  EXPECT_EQ(windows[0].rows, (std::vector<std::vector<int64_t>>{{12, 18, 28, 42}}));
  EXPECT_EQ(windows[1].rows, (std::vector<std::vector<int64_t>>{{0, 30, 49, 21}}));
  EXPECT_DOUBLE_EQ(windows[1].Balance(), 100.0 / (4 * 49));
  // From the fifth pass on the first group's expert 0 lies on rank 1, from the fourteenth on the
  // second group's on rank 2.
  EXPECT_EQ(hundred.layers, std::vector<int32_t>{1});
  EXPECT_EQ(hundred.rows, (std::vector<std::vector<int64_t>>{{12, 288, 637, 63}}));
  EXPECT_EQ(thousand.rows, (std::vector<std::vector<int64_t>>{{12, 2988, 6937, 63}}));
}

TEST(RankRows, BalanceIsMeanOverFullestOfAllLayers) {
  EXPECT_EQ(RankRows().Balance(), 1);
  EXPECT_EQ((RankRows{{0}, {{0, 0}}}).Balance(), 1) << "no rows";
  EXPECT_DOUBLE_EQ((RankRows{{0}, {{3, 1}}}).Balance(), 4.0 / 6);
  EXPECT_DOUBLE_EQ((RankRows{{0, 2}, {{4, 0}, {1, 3}}}).Balance(), 8.0 / 14);
}

TEST(RankCounts, ARankThatDoesNotComeIsAnError) {
  ThreadRanks groups({.dp = 2, .ep = 2}, std::chrono::milliseconds(20));
  ops::Ranks ranks = groups.Of(0);
  ExpertRecorder recorder({.model = "m", .experts = 2, .top_k = 1, .layers = {1}});
  RankCounts counts(recorder, ranks);
  counts.SetChoices(0, kShape, kInOrder);
  for (int pass = 1; pass < 10; ++pass) ASSERT_TRUE(counts.EndPass(1)) << "nobody is needed yet";
  const Result<bool> last = counts.EndPass(1);
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().message, "no word from rank 1 within 20 ms");
  EXPECT_TRUE(counts.last(0).rows.empty());
}

}  // namespace
}  // namespace braid
