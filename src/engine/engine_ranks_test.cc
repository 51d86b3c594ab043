// Ranks that are threads: which they are, what each computes with, and what must be the same on
// all.
#include "engine/engine_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/check.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<EngineRanks> RanksOn(const EngineOptions& options) {
  auto ranks = EngineRanks::Create(options);
  CHECK(ranks, "{}", ranks.error().message);
  return *std::move(ranks);
}

TEST(EngineRanks, ThreadsAreAllHere) {
  const auto ranks = RanksOn({.mesh = {.dp = 2, .tp = 2, .ep = 4}, .rank_seconds = 7});
  EXPECT_THAT(ranks->here(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(ranks->on_this_machine(), 4);
  EXPECT_EQ(ranks->of_a_node(), 4);
  EXPECT_FALSE(ranks->as_processes());
  EXPECT_EQ(ranks->deadline(), std::chrono::seconds(7));
  EXPECT_EQ(RanksOn({.mesh = {.dp = 4, .ep = 2}})->of_a_node(), 2);
  std::vector<int32_t> numbers = {5, 6};
  EXPECT_TRUE(ranks->Agree(numbers)) << "they share what they know";
  EXPECT_THAT(numbers, ElementsAre(5, 6));
}

TEST(EngineRanks, DivideTheThreadsAndTheirPlaces) {
  const auto ranks = RanksOn({.mesh = {.dp = 4}});
  Machine machine{.threads = 6};
  for (int i = 0; i < 6; ++i) {
    machine.places.cpus.push_back({10 + i});
    machine.places.nodes.push_back(i / 3);
  }
  const std::vector<std::vector<int>> cpus = {{10}, {11, 12}, {13}, {14, 15}};
  const std::vector<std::vector<int>> nodes = {{0}, {0, 0}, {1}, {1, 1}};
  for (int32_t rank = 0; rank < 4; ++rank) {
    const auto at = static_cast<size_t>(rank);
    const Machine own = ranks->ShareOf(machine, rank);
    EXPECT_EQ(own.threads, std::ssize(cpus[at])) << rank;
    std::vector<int> places;
    for (const auto& of_member : own.places.cpus) places.push_back(of_member[0]);
    EXPECT_EQ(places, cpus[at]) << rank;
    EXPECT_EQ(own.places.nodes, nodes[at]) << rank;
  }
  // Fewer threads than ranks: one each, wherever the kernel puts them.
  machine.threads = 2;
  machine.places.cpus.resize(2);
  machine.places.nodes.clear();
  EXPECT_EQ(ranks->ShareOf(machine, 0).threads, 1);
  EXPECT_THAT(ranks->ShareOf(machine, 0).places.cpus, IsEmpty());
  EXPECT_EQ(ranks->ShareOf(machine, 1).places.cpus.size(), 1u);
  EXPECT_THAT(ranks->ShareOf(machine, 1).places.nodes, IsEmpty()) << "of none it was said";
}

TEST(EngineRanks, AnExecutorKnowsItsPlace) {
  EngineOptions options{.mesh = {.dp = 3, .tp = 2, .ep = 6}, .two_batch_overlap = "on"};
  const auto ranks = RanksOn(options);
  ModelExecutorConfig config;
  ranks->AddTo(3, options, config);
  EXPECT_EQ(config.dp_rank, 1);
  EXPECT_EQ(config.dp_ranks, 3);
  EXPECT_EQ(config.ranks.all->rank(), 3);
  EXPECT_EQ(config.ranks.tensor->rank(), 1);
  EXPECT_EQ(config.ranks.tensor->size(), 2);
  EXPECT_EQ(config.ranks.experts->rank(), 3);
  EXPECT_EQ(config.second_half.tensor->rank(), 1);
  EXPECT_NE(config.second_half.tensor, config.ranks.tensor) << "halves have groups of their own";
  EXPECT_EQ(config.overlap, Overlap::kOn);
  EXPECT_EQ(config.times, nullptr);
  EXPECT_EQ(ranks->Moves(3).rank(), 3);
}

// Each group's exchanges end a part of the step.
TEST(EngineRanks, StepsAreMeasuredByGroup) {
  std::deque<StepTimes> times(2);
  EngineOptions options{.mesh = {.dp = 2, .ep = 2}};
  options.step_times = &times;
  const auto ranks = RanksOn(options);
  std::vector<ModelExecutorConfig> configs(2);
  for (int32_t rank : {0, 1}) ranks->AddTo(rank, options, configs[static_cast<size_t>(rank)]);
  const auto step = [&](size_t rank) {
    ModelExecutorConfig& config = configs[rank];
    EXPECT_EQ(config.times, &times[rank]);
    config.times->Begin(5);
    EXPECT_TRUE(config.ranks.experts->Barrier().ok());
    EXPECT_TRUE(config.ranks.tensor->Barrier().ok());
    EXPECT_TRUE(config.ranks.all->Barrier().ok());
    config.times->End({});
  };
  std::thread other([&] { step(1); });
  step(0);
  other.join();
  for (StepTimes& of_rank : times) {
    const std::vector<RankStep> steps = of_rank.Take();
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0].tokens, 5);
    std::vector<int32_t> groups;
    for (const StepPart& part : steps[0].parts) groups.push_back(part.group);
    EXPECT_THAT(groups, ::testing::IsSupersetOf({kExpertsGroup, kAllGroup}));
    EXPECT_EQ(groups.back(), StepPart::kEnd);
  }
}

TEST(RankChoices, WhatDoesNotSuitTheMeshIsRefusedByName) {
  const struct {
    EngineOptions options;
    Mesh mesh;
    const char* said;  // empty: fine
  } cases[] = {
      {{}, {}, ""},
      {{.two_batch_overlap = "on"}, {}, "--two-batch-overlap on needs several ranks"},
      {{.two_batch_overlap = "on"}, {.dp = 2}, ""},
      {{.two_batch_overlap = "auto"}, {}, ""},
      {{.reduce = "fast"}, {.dp = 2}, "needs --ep of 2 or more"},
      {{.reduce = "fast"}, {.dp = 2, .ep = 2}, ""},
      {{.reduce = "fast"}, {.dp = 2, .ep = 2, .redundant = 1}, "leave out redundant experts"},
      {{.reduce = "fast", .balance_experts = true}, {.dp = 2, .ep = 2}, "--balance-experts"},
      {{.reduce = "exact", .balance_experts = true}, {.dp = 2, .ep = 2, .redundant = 1}, ""},
  };
  for (const auto& c : cases) {
    const Status status = CheckRankChoices(c.options, c.mesh);
    EXPECT_EQ(status.ok(), *c.said == '\0') << c.said;
    EXPECT_THAT(status ? "" : status.error().message, HasSubstr(c.said));
  }
}

// Whatever changes a number that ranks compute, or how they exchange them.
TEST(StartOfRun, DiffersWhereverRanksWouldComputeOtherwise) {
  struct Start {
    ModelSpec spec;
    EngineOptions options;
    Machine machine;
    ExpertSlots slots;
  };
  const std::function<void(Start&)> changes[] = {
      [](Start&) {},
      [](Start& s) { s.spec.architecture = "Other"; },
      [](Start& s) { s.spec.layers.resize(3); },
      [](Start& s) { s.options.mesh.dp = 2; },
      [](Start& s) { s.options.mesh.tp = 2; },
      [](Start& s) { s.options.mesh.ep = 2; },
      [](Start& s) { s.options.weights = "int8"; },
      [](Start& s) { s.options.quantise_head = true; },
      [](Start& s) { s.machine.device.isa = Isa::kAvx2; },
      [](Start& s) { s.machine.device.avx512_bf16 = true; },
      [](Start& s) { s.machine.device.avx512_vbmi = true; },
      [](Start& s) { s.machine.device.compute = Compute::kBF16; },
      [](Start& s) { s.machine.kv_dtype = DType::kBF16; },
      [](Start& s) { s.machine.state_dtype = DType::kI8; },
      [](Start& s) { s.options.mla = "expanded"; },
      [](Start& s) { s.slots.redundant = 1; },
      [](Start& s) { s.slots.ranks_per_node = 2; },
      [](Start& s) { s.slots.placement = {{0, 1}, {}}; },
      [](Start& s) { s.slots.placement = {{1, 0}, {}}; },
      [](Start& s) { s.slots.placement = {{}, {0, 1}}; },
      [](Start& s) { s.slots.placement = {{0}, {1}}; },
      [](Start& s) { s.options.balance_experts = true; },
      [](Start& s) { s.options.balance_step_bytes = 1 << 16; },
      [](Start& s) { s.options.ep_dispatch = "latency"; },
      [](Start& s) { s.options.reduce = "fast"; },
      [](Start& s) { s.options.two_batch_overlap = "on"; },
  };
  std::set<std::string> seen;
  for (const auto& change : changes) {
    Start start;
    change(start);
    const auto text = [&] {
      return StartOfRun({.vocabulary = 9}, start.spec, start.options, start.machine, start.slots);
    };
    EXPECT_EQ(text().config.vocabulary, 9);
    EXPECT_EQ(text().model, text().model);
    seen.insert(text().model);
  }
  EXPECT_EQ(seen.size(), std::size(changes));
}

TEST(EngineRanks, AProcessAloneLeads) {
  EXPECT_FALSE(FollowsAsRank());
  const auto ranks = RanksOn({.mesh = {.dp = 2}});
  const Status bad = Error{ErrorCode::kInvalid, "bad"};
  EXPECT_EQ(OrEnd(bad, ranks.get()).error().message, "bad") << "only a process of several ends";
  EXPECT_EQ(OrEnd(bad, nullptr).error().message, "bad");
  EXPECT_TRUE(OrEnd({}, nullptr));
}

}  // namespace
}  // namespace braid
