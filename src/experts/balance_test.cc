// A placement changes where that pays, and nowhere else.
#include "experts/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace braid {
namespace {

constexpr ExpertShape kTwo{.experts = 4, .redundant = 0, .ranks = 2, .ranks_per_node = 2};
const std::vector<LayerSlots> kInOrder = {{0, 1, 2, 3}, {0, 1, 2, 3}};

TEST(Balance, MovesTheExpertsOfTheLayerThatNeedsIt) {
  const std::vector<int64_t> counts = {5000, 5000, 10, 10, 900, 900, 900, 900};
  const BalanceDecision decision = Decide(kTwo, kInOrder, {counts}, {});
  EXPECT_TRUE(decision.moves);
  EXPECT_NE(decision.next[0], kInOrder[0]);
  EXPECT_EQ(decision.next[1], kInOrder[1]);
  EXPECT_EQ(decision.received, 2);  // an exchange
  EXPECT_DOUBLE_EQ(decision.balance, 13620.0 / (2 * 11800));
  EXPECT_DOUBLE_EQ(decision.balance_next, 1);
}

TEST(Balance, StaysWhereItIsWhenTheGainIsSmall) {
  const std::vector<int64_t> counts = {1040, 1000, 1000, 1000, 9, 9, 9, 9};
  const BalanceDecision decision = Decide(kTwo, kInOrder, {counts}, {.wanted = 1});
  EXPECT_FALSE(decision.moves);
  EXPECT_EQ(decision.next, kInOrder);
}

TEST(Balance, StaysWhereItIsWhenAllLayersTogetherGainLittle) {
  // The first layer's slowest rank would save half of 1,000 rows; the other's takes 18,000.
  const std::vector<int64_t> counts = {500, 500, 10, 10, 9000, 9000, 9000, 9000};
  const BalanceDecision stays = Decide(kTwo, kInOrder, {counts}, {});
  EXPECT_FALSE(stays.moves);
  EXPECT_EQ(stays.next, kInOrder);
  EXPECT_EQ(stays.received, 0);
  EXPECT_EQ(stays.balance_next, stays.balance);
  const BalanceDecision moves = Decide(kTwo, kInOrder, {counts}, {.gain_min = 0.02});
  EXPECT_TRUE(moves.moves);
  EXPECT_NE(moves.next[0], kInOrder[0]);
  EXPECT_EQ(moves.next[1], kInOrder[1]);
}

TEST(Balance, ALayerForWhichItDoesNotPayStaysWhileAnotherMoves) {
  // The second layer would save 40 rows, and each rank would receive an expert.
  const std::vector<int64_t> counts = {5000, 5000, 10, 10, 60, 60, 20, 20};
  const BalanceDecision decision = Decide(kTwo, kInOrder, {counts}, {});
  EXPECT_TRUE(decision.moves);
  EXPECT_NE(decision.next[0], kInOrder[0]);
  EXPECT_EQ(decision.next[1], kInOrder[1]);
  EXPECT_EQ(decision.received, 2);
  EXPECT_DOUBLE_EQ(decision.balance_next, 10180.0 / (2 * (5010 + 120)));
}

TEST(Balance, WhatALayerThatStaysWouldSaveCountsForNothing) {
  // The second layer would save 4 % of 9,900 rows, so it stays. The first one would save half of
  // 1,000, which is 4.5 % of what both take.
  const std::vector<int64_t> counts = {500, 500, 10, 10, 9000, 900, 8550, 450};
  EXPECT_FALSE(Decide(kTwo, kInOrder, {counts}, {.wanted = 1}).moves);
  EXPECT_EQ(Decide(kTwo, kInOrder, {counts}, {.wanted = 1, .gain_min = 0.03}).received, 4);
}

TEST(Balance, StaysWhereItIsWhenMovingCostsMoreThanItSaves) {
  // Decoding in tiny batches: 40 rows are saved, and each rank would receive an expert.
  const std::vector<int64_t> counts = {40, 40, 0, 0, 0, 0, 0, 0};
  EXPECT_FALSE(Decide(kTwo, kInOrder, {counts}, {}).moves);
  EXPECT_TRUE(Decide(kTwo, kInOrder, {counts}, {.rows_per_move = 30}).moves);
  const BalanceDecision nothing = Decide(kTwo, kInOrder, {std::vector<int64_t>(8)}, {});
  EXPECT_FALSE(nothing.moves) << "nothing was counted";
  EXPECT_EQ(nothing.balance, 1);
  EXPECT_EQ(nothing.balance_next, 1);
}

TEST(Balance, OfSeveralGroupsEachSavesItsPartOnly) {
  // The rows of the test above, from each of four groups.
  const std::vector<int64_t> counts = {160, 160, 0, 0, 0, 0, 0, 0};
  EXPECT_TRUE(Decide(kTwo, kInOrder, {counts}, {}).moves);
  EXPECT_FALSE(Decide(kTwo, kInOrder, {.counts = counts, .groups = 4}, {}).moves);
  const BalanceDecision decision =
      Decide(kTwo, kInOrder, {.counts = counts, .groups = 4}, {.rows_per_move = 30});
  EXPECT_TRUE(decision.moves);
  EXPECT_DOUBLE_EQ(decision.balance, 0.5);
}

// Of three ranks two hold expert 0, and the third sends its rows to one of them.
TEST(Balance, CountsRowsWhereRanksSendThem) {
  constexpr ExpertShape kThree{.experts = 5, .redundant = 1, .ranks = 3, .ranks_per_node = 3};
  const std::vector<LayerSlots> current = {{0, 1, 0, 2, 3, 4}};
  const std::vector<int64_t> counts = {6000, 1500, 500, 4000, 0};
  const std::vector<double> loads(counts.begin(), counts.end());
  std::vector<double> seen;
  for (int32_t layer = 0; layer < 20; ++layer) {
    const auto choices =
        ReplicaChoices(kThree, current[0], kReplicaSeed + static_cast<uint64_t>(layer));
    const int32_t layers[] = {layer};
    const BalanceDecision decision =
        Decide(kThree, current, {.counts = counts, .layers = layers}, {});
    EXPECT_DOUBLE_EQ(decision.balance, Balancedness(ChosenLoads(kThree, choices, loads)));
    seen.push_back(decision.balance);
  }
  EXPECT_DOUBLE_EQ(std::ranges::max(seen), 12000.0 / (3 * 4500));
  EXPECT_DOUBLE_EQ(std::ranges::min(seen), 12000.0 / (3 * 5500));
}

TEST(Balance, WhatWasMovedForALoadStaysForTheSameLoad) {
  const std::vector<int64_t> counts = {5000, 3000, 2500, 10, 4000, 4100, 100, 100};
  const BalanceDecision first = Decide(kTwo, kInOrder, {counts}, {});
  EXPECT_TRUE(first.moves);
  EXPECT_DOUBLE_EQ(first.balance, 18810.0 / (2 * (8000 + 8100)));
  EXPECT_DOUBLE_EQ(first.balance_next, 18810.0 / (2 * (5500 + 4200)));
  EXPECT_FALSE(Decide(kTwo, first.next, {counts}, {}).moves);
}

// Rows of experts in one step, drawn independently.
std::vector<double> DrawStep(std::span<const double> means, Rng& rng) {
  std::vector<double> rows;
  for (const double mean : means) {
    int n = -1;  // arrivals before the mean, which are exponentially far apart
    for (double time = 0; time < mean; ++n) time -= std::log(1 - rng.Uniform());
    rows.push_back(std::max(n, 0));
  }
  return rows;
}

// Zipf's law, the popular experts side by side.
std::vector<double> Skewed(double rows) {
  std::vector<double> loads;
  for (int e = 1; e <= 64; ++e) loads.push_back(rows * 0.25 * std::pow(e, -1.2));
  return loads;
}

TEST(Balance, ExpectsWhatTheLongestRankTakesInTheMeanOfManySteps) {
  constexpr ExpertShape kFour{.experts = 64, .redundant = 0, .ranks = 4, .ranks_per_node = 4};
  Rng rng(1);  // and experts are in order: slot by slot
  for (const double rows : {4.0, 30.0, 300.0, 3000.0}) {
    std::vector<double> loads = Skewed(rows);
    // Ranks whose means are equal, which is when the slowest is far above them.
    for (size_t e = 0; e < 64; ++e) loads[e] = Skewed(rows)[e % 16];
    double sum = 0;
    constexpr int kSteps = 4000;
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<double> drawn = DrawStep(loads, rng);
      std::vector<double> ranks(4);
      for (size_t e = 0; e < 64; ++e) {
        ranks[e / 16] += drawn[e] == 0 ? 0 : std::max(drawn[e], 16.0);
      }
      sum += std::ranges::max(ranks);
    }
    constexpr BalanceWindow::Part kOne[] = {{}};
    const double expected = LongestRank(kFour, loads, kOne, 16);
    EXPECT_NEAR(expected / (sum / kSteps), 1, 0.03) << rows << " rows";
  }
}

// Where the expectation has a closed form: rows of a slot vary by their root, and the longer of two
// equal normal variables is expected to be above both by a deviation over the root of pi.
TEST(Balance, ExpectsOfOneRankItsMeanAndOfTwoEqualOnesWhatIsKnown) {
  constexpr BalanceWindow::Part kOne[] = {{}};
  constexpr ExpertShape kAlone{.experts = 400, .ranks = 1};
  constexpr ExpertShape kPair{.experts = 400, .ranks = 2, .ranks_per_node = 2};
  struct Case {
    double rows, read, mean, variance;  // of a slot
  };
  const double none = std::exp(-0.5);  // no row of half a row in the mean
  for (const Case& c :
       {Case{1000, 16, 1000, 1000}, Case{17, 16, 17, 17}, Case{3, 0, 3, 3}, Case{0.9, 1, 0.9, 0.9},
        Case{0.5, 16, 16 * (1 - none), 16 * 16 * none * (1 - none)}}) {
    const std::vector<double> loads(400, c.rows);
    EXPECT_NEAR(LongestRank(kAlone, loads, kOne, c.read), 400 * c.mean, 0.01);
    EXPECT_NEAR(LongestRank(kPair, loads, kOne, c.read),
                200 * c.mean + std::sqrt(200 * c.variance / std::numbers::pi), 0.01)
        << c.rows << " rows";
  }
  // The other rank has nothing to do.
  std::vector<double> loads(400);
  loads[3] = 900;
  EXPECT_NEAR(LongestRank(kPair, loads, kOne, 16), 900, 0.01);
  EXPECT_EQ(LongestRank(kPair, std::vector<double>(400), kOne, 16), 0);
}

TEST(Balance, TheTimesOfAllStepsAddUp) {
  constexpr ExpertShape kPair{.experts = 4, .ranks = 2, .ranks_per_node = 2};
  const std::vector<double> loads(4, 25'000);
  // 3/4 of the rows in one step, the others in 100.
  constexpr BalanceWindow::Part kParts[] = {{7, 0}, {1, 750}, {100, 250}};
  const double prompt = 37'500 + std::sqrt(37'500 / std::numbers::pi);
  const double token = 125 + std::sqrt(125 / std::numbers::pi);
  EXPECT_NEAR(LongestRank(kPair, loads, kParts, 0), prompt + 100 * token, 0.5);
  EXPECT_EQ(LongestRank(kPair, loads, std::span(kParts).first(1), 0), 0) << "no rows";
}

TEST(Balance, LeavesExpertsWhereTheyAreForStepsOfFewTokens) {
  // The same choices, in steps of many rows and of few.
  constexpr ExpertShape kFour{.experts = 64, .redundant = 0, .ranks = 4, .ranks_per_node = 4};
  std::vector<LayerSlots> current = {InOrder(kFour)};
  for (int32_t e = 0; e < 64; ++e) current[0][static_cast<size_t>(e)] = (e * 27 + 5) % 64;
  std::vector<int64_t> counts;
  for (const double load : Skewed(1'000'000)) counts.push_back(static_cast<int64_t>(load));
  constexpr BalanceWindow::Part kMany[] = {{500, 1'000'000}}, kFew[] = {{4'000, 1'000'000}};
  EXPECT_TRUE(Decide(kFour, current, {counts, kMany}, {}).moves);
  EXPECT_FALSE(Decide(kFour, current, {counts, kFew}, {}).moves);
}

TEST(Balance, SpreadsNoExpertThatIsReadForFewRows) {
  // Half of all choices are expert 2, which one rank has. If both had it, each step of few tokens
  // would read it twice; of many tokens, its rows would be divided.
  constexpr ExpertShape kReplicas{.experts = 4, .redundant = 2, .ranks = 2, .ranks_per_node = 2};
  const std::vector<LayerSlots> current = {InOrder(kReplicas)};
  const std::vector<int64_t> counts = {10000, 10000, 40000, 20000};
  constexpr BalanceWindow::Part kFew[] = {{10000, 80000}}, kMany[] = {{10, 80000}};
  EXPECT_TRUE(Decide(kReplicas, current, {counts, kMany}, {}).moves);
  EXPECT_FALSE(Decide(kReplicas, current, {counts, kFew}, {}).moves);
  EXPECT_TRUE(Decide(kReplicas, current, {counts, kFew}, {.rows_per_read = 0}).moves);
  // The rows of a prompt are as many as those of all the steps beside it.
  constexpr BalanceWindow::Part kMixed[] = {{1, 60000}, {500, 20000}};
  EXPECT_TRUE(Decide(kReplicas, current, {counts, kMixed}, {}).moves);
}

}  // namespace
}  // namespace braid
