// What the balancer asks for, by how many tokens each step has.
#include "runtime/experts/expert_balancer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <span>
#include <thread>
#include <variant>
#include <vector>

namespace braid {
namespace {

struct Moves final : EventSink {
  void Post(Event event) override { asked += std::holds_alternative<MoveExperts>(event) ? 1 : 0; }
  std::atomic<int> asked = 0;
};

struct Steps {
  int64_t count = 0, tokens = 0;  // of each
};

// Whether experts move after steps of 80,000 tokens in all, of which half choose expert 2.
bool MovesAfter(const std::vector<Steps>& steps, int32_t groups = 1) {
  constexpr ExpertShape kReplicas{.experts = 4, .redundant = 2, .ranks = 2, .ranks_per_node = 2};
  const std::vector<int64_t> counts = {10000, 10000, 40000, 20000};
  Moves moves;
  ExpertBalancer balancer({.shape = kReplicas, .layers = {3}, .groups = groups},
                          {.every_steps = 10, .below = 1, .rules = {}});
  for (const auto& [count, tokens] : steps) {
    for (int64_t i = 0; i < count; ++i) balancer.AddStep(tokens);
  }
  balancer.Add({.counts = counts, .steps = 10, .moving = false}, moves,
               [&] { return std::vector<LayerSlots>{InOrder(kReplicas)}; });
  for (int i = 0; i < 6000 && balancer.figures().decisions == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  balancer.Stop();
  EXPECT_EQ(balancer.figures().decisions, 1);
  EXPECT_EQ(balancer.figures().moves, moves.asked);
  return moves.asked > 0;
}

TEST(ExpertBalancer, JudgesStepsByTheirTokens) {
  EXPECT_TRUE(MovesAfter({{10, 8000}}));
  EXPECT_FALSE(MovesAfter({{10'000, 8}}));
  // A prompt beside tokens that come one by one: its rows take most of the time.
  EXPECT_TRUE(MovesAfter({{1, 60'000}, {500, 40}}));
}

TEST(ExpertBalancer, JudgesTheTokensOfAGroup) {
  EXPECT_TRUE(MovesAfter({{10, 8000}}, 2));
  EXPECT_FALSE(MovesAfter({{10, 8000}}, 1000));  // 8 of each
}

// Windows are added up until it is time, and experts that move are left alone.
TEST(ExpertBalancer, DecidesEverySoManyStepsWhileNothingMoves) {
  constexpr ExpertShape kReplicas{.experts = 4, .redundant = 2, .ranks = 2, .ranks_per_node = 2};
  const std::vector<int64_t> skewed = {10000, 10000, 40000, 20000}, none(4);
  Moves moves;
  ExpertBalancer balancer({.shape = kReplicas, .layers = {3}, .groups = 1},
                          {.every_steps = 20, .below = 1, .rules = {}});
  int asked = 0;
  const auto add = [&](std::span<const int64_t> counts, int32_t steps, bool moving) {
    balancer.Add({.counts = counts, .steps = steps, .moving = moving}, moves, [&] {
      ++asked;
      return std::vector<LayerSlots>{InOrder(kReplicas)};
    });
  };
  const auto decided = [&](int64_t count) {
    for (int i = 0; i < 6000 && balancer.figures().decisions < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return balancer.figures().decisions == count;
  };
  for (int i = 0; i < 10; ++i) balancer.AddStep(8000);
  add(skewed, 19, false);
  EXPECT_EQ(asked, 0) << "19 steps";
  add(none, 1, true);
  EXPECT_EQ(asked, 0) << "they move";
  add(none, 1, false);
  EXPECT_EQ(asked, 1);
  ASSERT_TRUE(decided(1));
  EXPECT_EQ(balancer.figures().moves, 1) << "by the counts of all windows";
  EXPECT_GT(balancer.figures().predicted, 0.75);
  EXPECT_LE(balancer.figures().predicted, 1);
  // Counts, steps and their tokens begin anew.
  add(none, 19, false);
  EXPECT_EQ(asked, 1);
  for (int i = 0; i < 10; ++i) balancer.AddStep(8000);
  add(none, 1, false);
  EXPECT_EQ(asked, 2);
  ASSERT_TRUE(decided(2));
  EXPECT_EQ(balancer.figures().moves, 1) << "nobody chose anything";
  balancer.Stop();
  EXPECT_EQ(moves.asked, 1);
}

TEST(ExpertBalancer, LeavesExpertsWhoseBalanceIsGoodEnough) {
  constexpr ExpertShape kReplicas{.experts = 4, .redundant = 2, .ranks = 2, .ranks_per_node = 2};
  const std::vector<int64_t> counts = {10000, 10000, 40000, 20000};
  Moves moves;
  ExpertBalancer balancer({.shape = kReplicas, .layers = {3}, .groups = 1},
                          {.every_steps = 10, .below = 0.5, .rules = {}});
  for (int i = 0; i < 10; ++i) balancer.AddStep(8000);
  balancer.Add({.counts = counts, .steps = 10, .moving = false}, moves,
               [&] { return std::vector<LayerSlots>{InOrder(kReplicas)}; });
  for (int i = 0; i < 6000 && balancer.figures().decisions == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  balancer.Stop();
  EXPECT_EQ(balancer.figures().decisions, 1);
  EXPECT_EQ(balancer.figures().moves, 0);
  EXPECT_EQ(balancer.figures().predicted, 0) << "nothing was wanted";
  EXPECT_EQ(moves.asked, 0);
}

}  // namespace
}  // namespace braid
