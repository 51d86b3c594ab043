// Placements judged by windows they have not seen, and the time of the fullest rank by hand.
#include "forecast/expert_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "base/check.h"
#include "experts/expert_map.h"
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

TEST(ExpertPlan, OnlinePlacementsAreJudgedByTheNextWindow) {
  // Known: experts 0 and 1 are hot. Then 0 and 2 are, which an exchange evens out; then 0 and 1.
  const ExpertLoads loads =
      Recorded({{4, 4, 0, 0}, {4, 0, 4, 0}, {4, 0, 4, 0}, {4, 4, 0, 0}, {4, 4, 0, 0}});
  const auto reports = ComparePlacements(loads, kTwoRanks, {.known = 0.2, .wanted = 1}, nullptr);
  ASSERT_TRUE(reports) << reports.error().message;
  using Balances = std::vector<double>;
  const PlacementReport& order = Find(*reports, PlacementMethod::kInOrder);
  EXPECT_EQ(order.windows_once, (Balances{1, 1, 0.5, 0.5}));
  EXPECT_EQ(order.windows_online, order.windows_once);
  EXPECT_EQ(order.balance_online, 0.75);
  EXPECT_EQ(order.received_online, 0);
  EXPECT_EQ(order.rank_loads, (std::vector<Balances>{{1.5, 0.5}}));  // 24 of 32
  const PlacementReport& moved = Find(*reports, PlacementMethod::kIncremental);
  // Each placement is by the one window before. Experts 0 and 1 lie apart after the first; whether
  // 0 and 2 then do depends on which was exchanged, and they do from the second window on.
  EXPECT_EQ(moved.windows_once.front(), moved.windows_online.front());
  EXPECT_EQ(moved.windows_online[1], 1);
  EXPECT_EQ(moved.windows_online[3], 1);
  double sum = 0;
  for (const double balance : moved.windows_online) sum += balance;
  EXPECT_DOUBLE_EQ(moved.balance_online, sum / 4);
  EXPECT_DOUBLE_EQ(moved.rank_loads[0][0] + moved.rank_loads[0][1], 2);
}

// As ChooseReplicas of the engine (runtime/experts/expert_slots.h) chooses.
TEST(ExpertPlan, RanksChooseReplicasByTheNumberOfTheLayerInTheModel) {
  constexpr ExpertShape kCopies{.experts = 4, .redundant = 3, .ranks = 7, .ranks_per_node = 7};
  ExpertLoads loads = Recorded({{800, 40, 2, 2}, {800, 40, 2, 2}});
  const std::vector<double> counts{800, 40, 2, 2};
  std::vector<double> balances;
  for (int32_t layer = 0; layer < 20; ++layer) {
    loads.layers = {layer};
    const auto reports = ComparePlacements(loads, kCopies, {}, nullptr);
    ASSERT_TRUE(reports) << reports.error().message;
    const auto choices =
        ReplicaChoices(kCopies, InOrder(kCopies), kReplicaSeed + static_cast<uint64_t>(layer));
    balances.push_back(Find(*reports, PlacementMethod::kInOrder).balance_chosen);
    EXPECT_DOUBLE_EQ(balances.back(), Balancedness(ChosenLoads(kCopies, choices, counts)));
  }
  EXPECT_GT(std::ranges::max(balances), std::ranges::min(balances));
}

TEST(ExpertPlan, TheHierarchicalPlacementNeedsGroupsThatDivide) {
  const ExpertLoads loads = Recorded({{1, 2, 3, 4}, {1, 2, 3, 4}});
  const auto methods = [&](const ExpertShape& shape, int32_t groups) {
    std::vector<std::string_view> names;
    const auto reports = ComparePlacements(loads, shape, {.groups = groups}, nullptr);
    for (const PlacementReport& report : *reports) names.push_back(NameOf(report.method));
    return names;
  };
  constexpr ExpertShape kTwoNodes{.experts = 4, .ranks = 4, .ranks_per_node = 2};
  const std::vector<std::string_view> all{"in order", "hierarchical", "global", "incremental"};
  EXPECT_EQ(methods(kTwoNodes, 2), all);
  EXPECT_EQ(methods(kTwoNodes, 4), all);
  for (const int32_t groups : {0, 1, 3}) EXPECT_EQ(methods(kTwoNodes, groups).size(), 3u) << groups;
  const auto placed = PlaceBy(PlacementMethod::kHierarchical, loads, kTwoNodes, {.groups = 1});
  ASSERT_FALSE(placed);
  EXPECT_NE(placed.error().message.find("1 groups of experts do not divide among 2 nodes"),
            std::string::npos);
  const auto in_order = PlaceBy(PlacementMethod::kInOrder, loads, kTwoNodes, {});
  ASSERT_TRUE(in_order);
  EXPECT_EQ(*in_order, std::vector<LayerSlots>(1, InOrder(kTwoNodes)));
}

TEST(ExpertPlan, ReceivedExpertsHaveTheirBytes) {
  const ModelSpec spec = Mixture();
  const Hardware hardware{.memory_bytes_per_second = 1e9, .bf16_flops = 1e12};
  const ExpertMachine machine{spec, hardware};
  const ExpertLoads loads = Recorded({{4, 4, 0, 0}, {4, 4, 0, 0}});
  const auto reports =
      ComparePlacements(loads, kTwoRanks, {.wanted = 1, .step_tokens = 8}, &machine);
  ASSERT_TRUE(reports) << reports.error().message;
  const PlacementReport& moved = Find(*reports, PlacementMethod::kIncremental);
  EXPECT_EQ(*moved.received_bytes, 2 * 3 * 64 * 32 * 2.0);  // of two experts, in bf16
  EXPECT_EQ(*Find(*reports, PlacementMethod::kInOrder).received_bytes, 0);
  EXPECT_GT(*Find(*reports, PlacementMethod::kInOrder).expert_seconds, *moved.expert_seconds);
}

TEST(ExpertPlan, DrawnLoadsFollowZipfsLawAndDrift) {
  ModelSpec spec = Mixture();
  std::get<MoeFfn>(spec.layers[0].ffn) = {.experts = 64, .top_k = 4, .width = 32};
  spec.layers.insert(spec.layers.begin(), {.mixer = FullAttention{}, .ffn = DenseFfn{.width = 8}});
  spec.layers.push_back(spec.layers[1]);
  const DrawnLoads drawn{.exponent = 1, .windows = 3, .tokens = 1000, .seed = 5};
  const auto loads = DrawLoads(spec, drawn);
  ASSERT_TRUE(loads);
  EXPECT_EQ(loads->layers, (std::vector<int32_t>{1, 2}));
  ASSERT_EQ(loads->windows.size(), 3u);
  double harmonic = 0;
  for (int i = 1; i <= 64; ++i) harmonic += 1.0 / i;
  for (const LoadWindow& window : loads->windows) {
    EXPECT_EQ(window.tokens, 1000);
    ASSERT_EQ(window.counts.size(), 2u);
    for (const auto& counts : window.counts) {
      std::vector<int64_t> sorted = counts;
      std::ranges::sort(sorted, std::greater());
      int64_t sum = 0;
      for (const int64_t count : sorted) sum += count;
      EXPECT_EQ(sum, 4000);
      // The first would have 843 of 1000 tokens; each next one its part of what is left.
      for (const size_t place : {0u, 1u, 9u, 63u}) {
        const double expected = 4000 / harmonic / static_cast<double>(place + 1);
        EXPECT_NEAR(static_cast<double>(sorted[place]), expected, 2) << place;
      }
    }
  }
  // Layers have orders of their own, and two neighbours change places from window to window.
  EXPECT_NE(loads->windows[0].counts[0], loads->windows[0].counts[1]);
  for (size_t layer = 0; layer < 2; ++layer) {
    int changed = 0;
    for (size_t e = 0; e < 64; ++e) {
      changed += loads->windows[0].counts[layer][e] != loads->windows[1].counts[layer][e];
    }
    EXPECT_LE(changed, 2);
  }
  EXPECT_EQ(DrawLoads(spec, drawn)->windows[2].counts, loads->windows[2].counts);
  // No token chooses an expert twice, however steep the law is; nobody is without experts.
  const auto steep = DrawLoads(spec, {.exponent = 9, .windows = 1, .tokens = 10});
  ASSERT_TRUE(steep);
  EXPECT_EQ(std::ranges::max(steep->windows[0].counts[0]), 10);
  // One expert has no neighbour.
  std::get<MoeFfn>(spec.layers[1].ffn) =
      std::get<MoeFfn>(spec.layers[2].ffn) = {.experts = 1, .top_k = 1, .width = 32};
  EXPECT_EQ(DrawLoads(spec, drawn)->windows[2].counts[1], std::vector<int64_t>{1000});
  spec.layers.resize(1);
  EXPECT_FALSE(DrawLoads(spec, drawn));
}

TEST(ExpertPlan, LoadsAreThoseOfAFileOrDrawn) {
  const ModelSpec spec = Mixture();
  const auto counts = [&](const std::string& source, uint64_t seed = 1) {
    const auto loads = LoadsOf(source, spec, seed);
    CHECK(loads, "{}", loads.error().message);
    return loads->windows.front().counts.front();
  };
  EXPECT_EQ(counts("zipf=0"), std::vector<int64_t>(4, 1024)) << "all alike";
  EXPECT_EQ(std::ranges::max(counts("zipf=10")), 4092);
  EXPECT_EQ(counts("zipf=1.2"), counts("zipf=1.2"));
  EXPECT_NE(LoadsOf("zipf=1.2", spec, 1)->windows.back().counts,
            LoadsOf("zipf=1.2", spec, 2)->windows.back().counts);
  EXPECT_EQ(LoadsOf("zipf=1", spec, 1)->windows.size(), 20u);
  EXPECT_EQ(LoadsOf("zipf=1", spec, 1)->windows.back().passes, 100);
  for (const char* wrong : {"zipf=", "zipf=-1", "zipf=10.1", "zipf=1x", "zipf=nan"}) {
    const auto loads = LoadsOf(wrong, spec, 1);
    ASSERT_FALSE(loads) << wrong;
    EXPECT_NE(loads.error().message.find("must be a number from 0 to 10"), std::string::npos);
  }
  EXPECT_FALSE(LoadsOf("zipf", spec, 1)) << "no file is called so";
  const std::string path =
      testing::TempDir() + "/expert_plan_test_" + std::to_string(getpid()) + ".jsonl";
  const ExpertLoads recorded = Recorded({{1, 2, 3, 4}, {5, 6, 7, 8}});
  ASSERT_TRUE(WriteExpertLoads(path, recorded));
  EXPECT_EQ(counts(path), (std::vector<int64_t>{1, 2, 3, 4}));
  std::filesystem::remove(path);
}

TEST(ExpertPlan, APartOfTheWindowsIsKnownAtLeastOneAndNeverAll) {
  std::vector<std::vector<int64_t>> windows(7, {4, 4, 0, 0});
  const auto held_out = [&](double known) {
    const auto reports = ComparePlacements(Recorded(windows), kTwoRanks, {.known = known}, nullptr);
    return reports->front().windows_once.size();
  };
  EXPECT_EQ(held_out(0), 6u);
  EXPECT_EQ(held_out(0.3), 5u);
  EXPECT_EQ(held_out(0.5), 3u);
  EXPECT_EQ(held_out(1), 1u);
}

TEST(ExpertPlan, PlacementsAreMadeOfTheLatestWindows) {
  // As many as were known at first: two.
  const std::vector<std::vector<int64_t>> windows{
      {4, 4, 0, 0}, {4, 4, 1, 0}, {9, 0, 8, 1}, {1, 9, 0, 8}, {5, 0, 5, 0}, {0, 3, 3, 9}};
  const ExpertPlanOptions options{.known = 0.34, .wanted = 1};
  const auto reports = ComparePlacements(Recorded(windows), kTwoRanks, options, nullptr);
  ASSERT_TRUE(reports);
  const PlacementReport& report = Find(*reports, PlacementMethod::kIncremental);
  const auto sum = [&](size_t first, size_t count) {
    std::vector<double> loads(4);
    for (size_t w = first; w < first + count; ++w) {
      for (size_t e = 0; e < 4; ++e) loads[e] += static_cast<double>(windows[w][e]);
    }
    return loads;
  };
  const auto balance = [&](const LayerSlots& slots, size_t window) {
    return Balancedness(RankLoads(kTwoRanks, slots, sum(window, 1)));
  };
  LayerSlots slots = PlaceIncremental(kTwoRanks, InOrder(kTwoRanks), sum(0, 2), 1);
  const LayerSlots once = slots;
  EXPECT_EQ(report.received, Received(kTwoRanks, InOrder(kTwoRanks), once));
  double moved = 0;
  ASSERT_EQ(report.windows_online.size(), 4u);
  for (size_t w = 2; w < 6; ++w) {
    EXPECT_DOUBLE_EQ(report.windows_online[w - 2], balance(slots, w)) << w;
    EXPECT_DOUBLE_EQ(report.windows_once[w - 2], balance(once, w)) << w;
    if (w == 5) break;
    const LayerSlots next = PlaceIncremental(kTwoRanks, slots, sum(w - 1, 2), 1);
    moved += static_cast<double>(Received(kTwoRanks, slots, next));
    slots = next;
  }
  EXPECT_GT(moved, 0);
  EXPECT_DOUBLE_EQ(report.received_online, moved / 3);
  // Of all windows: what is written for an engine.
  const auto placed = PlaceBy(PlacementMethod::kIncremental, Recorded(windows), kTwoRanks, options);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->front(), PlaceIncremental(kTwoRanks, InOrder(kTwoRanks), sum(0, 6), 1));
}

TEST(ExpertPlan, WhatNobodyChoosesTakesNoTime) {
  const ModelSpec spec = Mixture();
  const auto& moe = std::get<MoeFfn>(spec.layers[0].ffn);
  const Hardware hardware{.memory_bytes_per_second = 1e9, .bf16_flops = 1e6};
  const ExpertMachine machine{spec, hardware};
  const LayerSlots slots = InOrder(kTwoRanks);
  EXPECT_EQ(FullestSeconds(kTwoRanks, slots, {moe, kEven}, 0, machine), 0);
  EXPECT_EQ(FullestSeconds(kTwoRanks, slots, {moe, {0, 0, 0, 0}}, 8, machine), 0);
  // A layer without load is as even as can be.
  const auto reports = ComparePlacements(Recorded({{1, 1, 1, 1}, {0, 0, 0, 0}}), kTwoRanks, {},
                                         &machine);
  ASSERT_TRUE(reports) << reports.error().message;
  EXPECT_EQ(reports->front().balance_held_out, 1);
  EXPECT_EQ(reports->front().rank_loads, (std::vector<std::vector<double>>{{1, 1}}));
  EXPECT_EQ(*reports->front().expert_seconds, 0);
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
  spec = Mixture();
  std::get<MoeFfn>(spec.layers[0].ffn).top_k = 2;
  EXPECT_NE(message(kTwoRanks, &machine).find("layer 0 of the model has 4, 2 a token"),
            std::string::npos);
  const auto single = ComparePlacements(Recorded({{1, 1, 1, 1}}), kTwoRanks, {}, nullptr);
  ASSERT_FALSE(single);
  EXPECT_NE(single.error().message.find("at least 2 are needed"), std::string::npos);
  EXPECT_FALSE(PlaceBy(PlacementMethod::kGlobal, loads, {.experts = 5}, {}));
  EXPECT_FALSE(PlaceBy(PlacementMethod::kGlobal, loads, {.experts = 4, .ranks = 3}, {}));
}

}  // namespace
}  // namespace braid
