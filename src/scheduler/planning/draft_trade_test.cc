// What a step costs by its tokens as far as steps were measured, and how many drafts that allows.
#include "scheduler/planning/draft_trade.h"

#include <gtest/gtest.h>

#include "scheduler/planning/step_cost.h"

namespace braid {
namespace {

// Steps of 1 to 8 tokens that take `fixed` and so much for each token, in microseconds.
DecodeLine Measured(int64_t fixed_us, int64_t token_us) {
  DecodeLine line;
  for (int i = 0; i < 200; ++i) {
    const int64_t tokens = 1 + i % 8;
    line.Learn(tokens, (fixed_us + token_us * tokens) * 1000);
  }
  return line;
}

int32_t Depth(const DecodeLine& line, int32_t rows, int32_t chance, int32_t most = 7,
              bool short_steps = false) {
  return DraftTrade(line, rows, short_steps).Take(Acceptance(chance), most);
}

TEST(DecodeLine, FindsWhatATokenAddsToAStep) {
  const DecodeLine line = Measured(1000, 100);
  EXPECT_NEAR(static_cast<double>(line.slope_ns()), 100e3, 10e3);
  EXPECT_NEAR(static_cast<double>(line.Ns(1)), 1100e3, 60e3);
  EXPECT_NEAR(static_cast<double>(line.Ns(30)), 4000e3, 400e3);
}

TEST(DecodeLine, KeepsItsSlopeWhereAllStepsAreAlike) {
  DecodeLine line = Measured(1000, 100);
  for (int i = 0; i < 500; ++i) line.Learn(4, 2'800'000);  // the machine became slower
  EXPECT_NEAR(static_cast<double>(line.Ns(4)), 2800e3, 50e3);
  EXPECT_GT(line.slope_ns(), 30'000);
  EXPECT_LT(line.slope_ns(), 1'000'000);
}

TEST(DecodeLine, HardlyHeedsAStepThatSomebodyInterrupted) {
  DecodeLine line = Measured(1000, 100);
  line.Learn(1, 5'000'000'000);
  EXPECT_LT(line.Ns(1), 1'500'000);
}

TEST(StepCost, LearnsNothingFromPlansThatOnlyMovePages) {
  StepCost cost;
  cost.Learn(6400, 64, 0);  // 100 us for each token
  for (int i = 0; i < 200; ++i) cost.Learn(1000 + 100 * (1 + i % 8), 0, 1 + i % 8);
  const int64_t slope_ns = cost.decode().slope_ns(), ns = cost.decode().Ns(1);
  const int32_t ration = cost.Ration(20'000, 1024), depth = Depth(cost.decode(), 1, kWhole / 2);
  EXPECT_GT(depth, 0);
  for (int i = 0; i < 50; ++i) cost.Learn(50, 0, 0);
  EXPECT_EQ(cost.decode().slope_ns(), slope_ns);
  EXPECT_EQ(cost.decode().Ns(1), ns);
  EXPECT_EQ(cost.Ration(20'000, 1024), ration);
  EXPECT_EQ(Depth(cost.decode(), 1, kWhole / 2), depth);
}

TEST(DraftTrade, GoesDeeperTheOftenerDraftsAreRight) {
  const DecodeLine line = Measured(1000, 100);
  EXPECT_EQ(Depth(line, 1, kWhole), 7);
  EXPECT_EQ(Depth(line, 1, kWhole, 3), 3);
  EXPECT_EQ(Depth(line, 1, kWhole / 20), 0);
  int32_t before = 0;
  for (int32_t chance = 0; chance <= kWhole; chance += 32) {
    const int32_t depth = Depth(line, 1, chance);
    EXPECT_GE(depth, before);
    before = depth;
  }
}

TEST(DraftTrade, TakesNoneWhereEveryTokenCostsAsMuch) {
  const DecodeLine line = Measured(1, 500);
  EXPECT_EQ(Depth(line, 1, kWhole * 9 / 10), 0);
  // Where a step of one token is cheap but for what it costs anyway, one of 64 is not.
  EXPECT_GT(Depth(Measured(1000, 100), 1, kWhole * 7 / 10), 0);
  EXPECT_EQ(Depth(Measured(1000, 100), 64, kWhole * 7 / 10), 0);
}

// A step of 20 tokens takes 3 ms. A draft adds 3.3 % to its time, and 3.6 % to its tokens.
TEST(DraftTrade, BringsAnEighthMoreWhereStepsShouldBeShort) {
  const DecodeLine line = Measured(1000, 100);
  const int32_t chance = kWhole * 72 / 100;
  EXPECT_EQ(Depth(line, 20, chance, 1), 1);
  EXPECT_EQ(Depth(line, 20, chance, 1, true), 0);
  EXPECT_EQ(Depth(line, 20, kWhole * 9 / 10, 1, true), 1);
}

TEST(DraftTrade, TriesBeforeAnythingWasMeasured) {
  EXPECT_GT(Depth(DecodeLine(), 1, kWhole / 2), 0);
  EXPECT_EQ(Depth(DecodeLine(), 200, kWhole / 2), 0);
}

// Of 4 rows the first have the drafts that pay; then the step is longer, and brings more.
TEST(DraftTrade, CountsWhatOthersHaveTaken) {
  DraftTrade trade(Measured(1000, 100), 4, false);
  const int64_t tokens = trade.tokens(), ns = trade.ns();
  const int32_t depth = trade.Take(Acceptance(kWhole * 3 / 4), 7);
  EXPECT_GT(depth, 0);
  EXPECT_GT(trade.tokens(), tokens);
  EXPECT_NEAR(static_cast<double>(trade.ns() - ns), depth * 100e3, 12e3 * depth);
}

TEST(Acceptance, FollowsWhatItSees) {
  Acceptance acceptance(kWhole / 2);
  for (int i = 0; i < 100; ++i) acceptance.Note(0, true, 8);
  for (int i = 0; i < 100; ++i) acceptance.Note(1, i % 2 == 0, 8);
  for (int i = 0; i < 100; ++i) acceptance.Note(40, false, 8);
  EXPECT_GT(acceptance.chance(0), kWhole * 9 / 10);
  EXPECT_NEAR(acceptance.chance(1), kWhole / 2, kWhole / 5);
  EXPECT_EQ(acceptance.chance(2), kWhole / 2);
  EXPECT_LT(acceptance.chance(7), kWhole / 10);
  EXPECT_EQ(acceptance.chance(7), acceptance.chance(50));
}

// One request is enough to see that a head is no good.
TEST(Acceptance, BelievesItsFirstGuessNoLongerThanAFewDrafts) {
  Acceptance wrong(kWhole * 7 / 8), right(kWhole / 8);
  for (int i = 0; i < 8; ++i) {
    wrong.Note(0, false, 64);
    right.Note(0, true, 64);
  }
  EXPECT_LT(wrong.chance(0), kWhole / 3);
  EXPECT_GT(right.chance(0), kWhole * 2 / 3);
  // Later it takes many to change its mind.
  for (int i = 0; i < 200; ++i) wrong.Note(0, false, 64);
  for (int i = 0; i < 4; ++i) wrong.Note(0, true, 64);
  EXPECT_LT(wrong.chance(0), kWhole / 8);
}

}  // namespace
}  // namespace braid
