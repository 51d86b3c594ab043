// Placements judged by windows they have not seen, and the time of the fullest rank by hand.
#include "forecast/expert_plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "experts/placement.h"
#include "forecast/formulas.h"

namespace braid {
namespace {

ExpertLoads Recorded(std::vector<std::vector<int64_t>> windows) {
  ExpertLoads loads{.experts = 4, .top_k = 1, .layers = {0}};
  for (auto& counts : windows) {
    int64_t tokens = 0;
    for (const int64_t count : counts) tokens += count;
    loads.windows.push_back({.passes = 1, .tokens = tokens, .counts = {std::move(counts)}});
  }
  return loads;
}
ModelSpec Mixture() {
  return {.hidden = 64,
          .vocabulary = 128,
          .layers = {{.mixer = FullAttention{.heads = 4, .kv_heads = 2, .head_dim = 16},
                      .ffn = MoeFfn{.experts = 4, .top_k = 1, .width = 32}}}};
}
const std::vector<double> kEven{5, 5, 5, 5}, kOne{7, 0, 0, 0};
constexpr ExpertShape kTwoRanks{.experts = 4, .ranks = 2, .ranks_per_node = 2};

const PlacementReport& Find(const std::vector<PlacementReport>& reports, PlacementMethod method) {
  return *std::ranges::find(reports, method, &PlacementReport::method);
}

TEST(ExpertPlan, JudgesByWindowsThatThePlacementHasNotSeen) {
  // The load changes: what was placed by the first window is wrong for the second.
  const ExpertLoads loads = Recorded({{4, 4, 0, 0}, {4, 0, 4, 0}});
  const auto reports = ComparePlacements(loads, kTwoRanks, {.known = 0.5, .wanted = 1}, nullptr);
  ASSERT_TRUE(reports) << reports.error().message;
  const PlacementReport& order = Find(*reports, PlacementMethod::kInOrder);
  EXPECT_EQ(order.balance_known, 0.5);
  EXPECT_EQ(order.balance_held_out, 1);
  EXPECT_EQ(order.received, 0);
  const PlacementReport& incremental = Find(*reports, PlacementMethod::kIncremental);
  EXPECT_EQ(incremental.balance_known, 1);
  EXPECT_EQ(incremental.received, 2);  // an exchange
  EXPECT_FALSE(incremental.expert_seconds);
}

TEST(ExpertPlan, LayersCountByTheirLoad) {
  ExpertLoads loads = Recorded({{1, 1, 0, 0}, {1, 1, 0, 0}});
  loads.layers = {0, 1};
  for (LoadWindow& window : loads.windows) window.counts.push_back({9, 0, 9, 0});
  const auto reports = ComparePlacements(loads, kTwoRanks, {}, nullptr);
  ASSERT_TRUE(reports);
  EXPECT_DOUBLE_EQ(Find(*reports, PlacementMethod::kInOrder).balance_held_out, 20.0 / (2 * 11));
}

TEST(ExpertPlan, NoBalanceIsAboveOne) {
  // Three replicas of each expert, one on each of twelve ranks: thirds add up to a rounding more.
  constexpr ExpertShape kThirds{.experts = 4, .redundant = 8, .ranks = 12, .ranks_per_node = 12};
  for (int64_t count = 1; count < 200; ++count) {
    const std::vector<int64_t> even(4, count);
    const auto reports = ComparePlacements(Recorded({even, even}), kThirds, {}, nullptr);
    ASSERT_TRUE(reports) << reports.error().message;
    for (const PlacementReport& report : *reports) {
      ASSERT_LE(report.balance_held_out, 1);
      ASSERT_LE(report.windows_online[0], 1);
    }
    ASSERT_NEAR(Find(*reports, PlacementMethod::kIncremental).balance_held_out, 1, 1e-9);
  }
}

TEST(ExpertPlan, EvenLoadsTakeTheTimeOfTheForecast) {
  const ModelSpec spec = Mixture();
  const auto& moe = std::get<MoeFfn>(spec.layers[0].ffn);
  for (const double peak : {1e12, 1e6}) {  // bound by memory, by arithmetic
    const Hardware hardware{.memory_bytes_per_second = 1e9, .bf16_flops = peak};
    const ExpertMachine machine{spec, hardware};
    const StepShape shape{.tokens = 10, .expert_share = 0.5};
    MoeFfn no_width = moe;
    no_width.width = 0;
    const Cost all = CostsOf(moe, 64, shape)[0], router = CostsOf(no_width, 64, shape)[0];
    const double expected =
        LimitSeconds(all.flops - router.flops, peak, all.bytes - router.bytes, 1e9);
    EXPECT_NEAR(FullestSeconds(kTwoRanks, InOrder(kTwoRanks), {moe, kEven}, 10, machine), expected,
                expected * 1e-12);
  }
}

TEST(ExpertPlan, TheFullestRankDecidesAndIdleExpertsAreNotRead) {
  const ModelSpec spec = Mixture();
  const auto& moe = std::get<MoeFfn>(spec.layers[0].ffn);
  const Hardware hardware{.memory_bytes_per_second = 1e9, .bf16_flops = 1e6};
  const ExpertMachine machine{spec, hardware};
  // All 8 tokens choose expert 0.
  const double flops = 2.0 * 8 * 3 * 64 * 32;
  EXPECT_DOUBLE_EQ(FullestSeconds(kTwoRanks, {0, 1, 2, 3}, {moe, kOne}, 8, machine), flops / 1e6);
  // Two replicas on two ranks: half.
  const ExpertShape copies{.experts = 4, .redundant = 2, .ranks = 2, .ranks_per_node = 2};
  EXPECT_DOUBLE_EQ(FullestSeconds(copies, {0, 1, 2, 0, 3, 1}, {moe, kOne}, 8, machine),
                   flops / 2 / 1e6);
  const Hardware slow{.memory_bytes_per_second = 1e3, .bf16_flops = 1e12};
  EXPECT_DOUBLE_EQ(FullestSeconds(kTwoRanks, {0, 1, 2, 3}, {moe, kOne}, 8, {spec, slow}),
                   2.0 * 3 * 64 * 32 / 1e3);
}

TEST(ExpertPlan, ErrorsSayWhatDoesNotFit) {
  const ExpertLoads loads = Recorded({{1, 1, 1, 1}, {1, 1, 1, 1}});
  const auto message = [&](const ExpertShape& shape, const ExpertMachine* machine) {
    const auto reports = ComparePlacements(loads, shape, {}, machine);
    return reports ? std::string("none") : reports.error().message;
  };
  EXPECT_NE(message({.experts = 4, .ranks = 3}, nullptr).find("2 redundant"), std::string::npos);
  EXPECT_NE(message({.experts = 5}, nullptr).find("of 4 experts"), std::string::npos);
  ModelSpec spec = Mixture();
  const Hardware hardware;
  const ExpertMachine machine{spec, hardware};
  EXPECT_EQ(message(kTwoRanks, &machine), "none");
  spec.layers.push_back(spec.layers[0]);
  EXPECT_NE(message(kTwoRanks, &machine).find("experts in layers 0, 1"), std::string::npos);
}

}  // namespace
}  // namespace braid
