// What the figures of a rebalanced run are, of steps that are given.
#include "cli/bench/rebalance_steps.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid {
namespace {

constexpr int32_t kExperts = 1, kOther = 2;

TEST(RebalanceSteps, ExpertsComputeBeforeTheirRowsGoBack) {
  // Two rounds of three exchanges, with another group's between them.
  const GroupStep step{.moving = true,
                       .cpu_ns = 9'000'000,
                       .beside_ns = 2'000'000,
                       .wall_ns = 20'000'000,
                       .parts = {{kExperts, 1'000'000},
                                 {kExperts, 500'000},
                                 {kExperts, 3'000'000},
                                 {kOther, 250'000},
                                 {kExperts, 250'000},
                                 {kExperts, 1'000'000},
                                 {kExperts, 2'000'000},
                                 {StepPart::kEnd, 1'000'000}}};
  const RebalanceStep counted = StepOf(step, kExperts, 3);
  EXPECT_DOUBLE_EQ(counted.experts_ms, 5);
  EXPECT_DOUBLE_EQ(counted.step_ms, 9);
  EXPECT_DOUBLE_EQ(counted.moves_ms, 2);
  EXPECT_DOUBLE_EQ(counted.wall_ms, 20);
  EXPECT_TRUE(counted.moving);
  EXPECT_DOUBLE_EQ(StepOf(step, kExperts, 2).experts_ms, 0.5 + 0.25 + 2);
}

RebalanceStep Step(bool placed, double step_ms, double experts_ms) {
  return {.placed = placed, .step_ms = step_ms, .experts_ms = experts_ms, .wall_ms = 2 * step_ms};
}

TEST(RebalanceSteps, OnlyTheExpertsTimeIsPredictedToChange) {
  const std::vector<RebalanceStep> steps = {Step(false, 100, 60), Step(false, 90, 60),
                                            Step(false, 110, 60), Step(true, 84, 47),
                                            Step(true, 80, 45)};
  const RebalanceFigures figures = FiguresOf(steps, 0.75);
  EXPECT_EQ(figures.in_order, 3);
  EXPECT_EQ(figures.placed, 2);
  EXPECT_DOUBLE_EQ(figures.predicted_experts_ms, 45);
  EXPECT_DOUBLE_EQ(figures.predicted_step_ms, 85);
  EXPECT_DOUBLE_EQ(figures.gain, 100.0 / 82);
  EXPECT_DOUBLE_EQ(figures.predicted_gain, 100.0 / 85);
  EXPECT_DOUBLE_EQ(figures.over_prediction, 82.0 / 85);
  EXPECT_EQ(figures.longest_moving, 0);
  EXPECT_DOUBLE_EQ(figures.wall_ms, 2 * 90);
}

TEST(RebalanceSteps, AMovingStepTakesWhatMovingTakesToo) {
  RebalanceStep moving = Step(false, 100, 60);
  moving.moving = true;
  moving.moves_ms = 20;
  RebalanceStep shorter = moving;
  shorter.moves_ms = 1;
  const std::vector<RebalanceStep> steps = {Step(false, 100, 60), moving, shorter,
                                            Step(false, 110, 60), Step(false, 90, 60)};
  const RebalanceFigures figures = FiguresOf(steps, 1);
  EXPECT_EQ(figures.moving, 2);
  EXPECT_EQ(figures.in_order, 3);
  EXPECT_DOUBLE_EQ(figures.longest_moving, 1.2);
  EXPECT_DOUBLE_EQ(figures.longest_still, 1.1);
  EXPECT_DOUBLE_EQ(figures.longest_moving_wall, 1);
  EXPECT_EQ(figures.gain, 0);  // nothing was placed
}

}  // namespace
}  // namespace braid
