// A placement changes where that pays, and nowhere else.
#include "experts/balance.h"

#include <gtest/gtest.h>

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

TEST(Balance, StaysWhereItIsWhenMovingCostsMoreThanItSaves) {
  // Decoding in tiny batches: 40 rows are saved, and each rank would receive an expert.
  const std::vector<int64_t> counts = {40, 40, 0, 0, 0, 0, 0, 0};
  EXPECT_FALSE(Decide(kTwo, kInOrder, {counts}, {}).moves);
  EXPECT_TRUE(Decide(kTwo, kInOrder, {counts}, {.rows_per_move = 30}).moves);
  EXPECT_FALSE(Decide(kTwo, kInOrder, {std::vector<int64_t>(8)}, {}).moves);  // nothing was counted
}

TEST(Balance, WhatWasMovedForALoadStaysForTheSameLoad) {
  const std::vector<int64_t> counts = {5000, 3000, 2500, 10, 4000, 4100, 100, 100};
  const BalanceDecision first = Decide(kTwo, kInOrder, {counts}, {});
  EXPECT_TRUE(first.moves);
  EXPECT_FALSE(Decide(kTwo, first.next, {counts}, {}).moves);
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
