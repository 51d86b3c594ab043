// What options say about experts: who counts them, where they lie, and what moving them takes.
#include "engine/engine_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/rng.h"
#include "experts/balance.h"
#include "experts/placement_file.h"
#include "model/checkpoint/test_directory.h"
#include "scheduler/inbox.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A dense layer, then two of eight experts.
ModelSpec SpecWithExperts() {
  ModelSpec spec;
  spec.layers.resize(3);
  for (const size_t i : {1, 2}) spec.layers[i].ffn = MoeFfn{.experts = 8, .top_k = 2};
  return spec;
}

std::string Refused(const EngineOptions& options, const ModelSpec& spec) {
  const auto recorder = RecorderOf(options, spec, false);
  return recorder ? "" : recorder.error().field + ": " + recorder.error().message;
}

TEST(EngineExperts, AreCountedLayerByLayer) {
  const EngineOptions options{.model_dir = "models/tiny-moe"};
  const auto recorder = RecorderOf(options, SpecWithExperts(), false);
  ASSERT_TRUE(recorder && *recorder);
  const ExpertLoads& header = (*recorder)->header();
  EXPECT_EQ(header.model, "tiny-moe");
  EXPECT_EQ(header.experts, 8);
  EXPECT_EQ(header.top_k, 2);
  EXPECT_THAT(header.layers, ElementsAre(1, 2));
  EXPECT_EQ(*RecorderOf(options, SpecWithExperts(), true), nullptr) << "on a device";
  ModelSpec dense;
  dense.layers.resize(2);
  EXPECT_EQ(*RecorderOf(options, dense, false), nullptr);
}

TEST(EngineExperts, AFileOfLoadsIsMadeBeforeTheModelIsLoaded) {
  const TestDirectory directory;
  const std::string path = directory.path() + "/loads.jsonl";
  const ModelSpec spec = SpecWithExperts();
  ModelSpec dense;
  dense.layers.resize(2);
  EXPECT_THAT(Refused({.expert_loads_line = "pass"}, spec),
              HasSubstr("expert_loads_line: --expert-loads-line goes with --expert-loads FILE"));
  EXPECT_THAT(Refused({.model_dir = "m", .expert_loads = path}, dense),
              HasSubstr("expert_loads: m has no experts"));
  EXPECT_THAT(Refused({.expert_loads = directory.path() + "/none/loads"}, spec),
              HasSubstr("none/loads"));
  for (const char* line : {"pass", "token"}) {
    EXPECT_THAT(Refused({.mesh = {.dp = 2}, .expert_loads = path, .expert_loads_line = line}, spec),
                HasSubstr(std::string("--expert-loads-line ") + line + ": several ranks"));
    EXPECT_EQ(Refused({.expert_loads = path, .expert_loads_line = line}, spec), "");
  }
  EXPECT_EQ(Refused({.mesh = {.dp = 2}, .expert_loads = path}, spec), "");
  EXPECT_THAT(directory.Read("loads.jsonl"), HasSubstr("\"layers\""));
}

class PlacementFile : public ::testing::Test {
 protected:
  // The error that a file gives on a mesh, or none.
  std::string Read(
      const std::function<void(ExpertPlacement&)>& change,
      const std::function<void(EngineOptions&)>& choose = [](EngineOptions&) {}) {
    ExpertPlacement file{.model = "m",
                         .shape = {.experts = 8, .redundant = 4, .ranks = 4, .ranks_per_node = 2},
                         .layers = {1, 2}};
    change(file);
    LayerSlots slots = InOrder(file.shape);
    std::swap(slots[0], slots[1]);
    file.slots.assign(file.layers.size(), slots);
    const std::string path = directory_.path() + "/placement.json";
    EXPECT_TRUE(WriteExpertPlacement(path, file));
    EngineOptions options{.mesh = {.dp = 4, .ep = 4}, .expert_placement = path};
    choose(options);
    mesh_ = options.mesh;
    const Result<ExpertSlots> read = ExpertSlotsOf(options, SpecWithExperts(), mesh_);
    if (!read) return read.error().message;
    slots_ = *read;
    return "";
  }
  const TestDirectory directory_;
  Mesh mesh_;
  ExpertSlots slots_;
};

TEST_F(PlacementFile, SaysWhereEachLayersExpertsLie) {
  ASSERT_EQ(Read([](ExpertPlacement&) {}), "");
  EXPECT_EQ(mesh_.redundant, 4);
  EXPECT_EQ(slots_.redundant, 4);
  EXPECT_EQ(slots_.ranks_per_node, 2);
  ASSERT_EQ(slots_.placement.size(), 3u);
  EXPECT_THAT(slots_.placement[0], IsEmpty());
  for (const size_t layer : {1, 2}) {
    EXPECT_THAT(slots_.placement[layer], ElementsAre(1, 0, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
  }
}

TEST_F(PlacementFile, OfAnotherModelOrMeshIsRefusedWithTheReason) {
  const auto nothing = [](ExpertPlacement&) {};
  EXPECT_THAT(Read(nothing, [](EngineOptions& o) { o.redundant_experts = 4; }),
              HasSubstr("leave out --redundant-experts"));
  EXPECT_THAT(Read(nothing, [](EngineOptions& o) { o.mesh = {.dp = 2, .ep = 2}; }),
              HasSubstr("it places experts on 4 ranks"));
  EXPECT_THAT(Read([](ExpertPlacement& f) { f.shape.ranks = f.shape.ranks_per_node = 1; },
                   [](EngineOptions& o) { o.mesh = {}; }),
              HasSubstr("start with --ep 2"));
  EXPECT_THAT(Read([](ExpertPlacement& f) { f.shape.experts = 4; }),
              HasSubstr("it places 4 experts; layer 1 of the model has 8"));
  EXPECT_THAT(Read([](ExpertPlacement& f) { f.layers = {0, 2}; }),
              HasSubstr("of layers 0, 2; the model has experts in layers 1, 2"));
  EXPECT_THAT(Read([](ExpertPlacement& f) { f.layers = {1}; }), HasSubstr("of layers 1; the"));
}

TEST(EngineExperts, WithoutAFileTheyAreInOrder) {
  Mesh mesh{.dp = 2, .ep = 2};
  const auto slots = ExpertSlotsOf({.redundant_experts = 2}, SpecWithExperts(), mesh);
  ASSERT_TRUE(slots);
  EXPECT_EQ(mesh.redundant, 2);
  EXPECT_EQ(slots->redundant, 2);
  EXPECT_THAT(slots->placement, IsEmpty());
}

// It decides as its parts say: nodes of two ranks, layers 1 and 2, two groups of four ranks.
TEST(EngineExperts, TheBalancerKnowsNodesLayersAndGroups) {
  const EngineOptions options{.mesh = {.dp = 8, .ep = 4, .redundant = 4},
                              .balance = {.every_steps = 10, .below = 1, .rules = {}}};
  const std::vector<int32_t> layers = {1, 2};
  constexpr BalanceWindow::Part kSteps[] = {{.steps = 10, .rows = 80'000}};
  ExpertShape shape = options.mesh.SlotsOf(8);
  const std::vector<LayerSlots> now(2, InOrder(shape));
  std::vector<int64_t> counts(16);
  const auto decided = [&](int32_t ranks_per_node) {
    shape.ranks_per_node = ranks_per_node;
    return Decide(shape, now, {counts, kSteps, layers, 2}, options.balance.rules);
  };
  Rng rng(1);
  BalanceDecision want;
  do {  // until nodes make a difference
    for (int64_t& count : counts) count = static_cast<int64_t>(rng.Below(50'000));
    want = decided(2);
  } while (!want.moves || want.next == decided(4).next);
  const auto balancer = BalancerOf(options, SpecWithExperts(), {.ranks_per_node = 2});
  Inbox inbox;
  for (int i = 0; i < 10; ++i) balancer->AddStep(8000);
  balancer->Add({.counts = counts, .steps = 10, .moving = false}, inbox, [&] { return now; });
  inbox.Wait(60'000'000);
  const std::vector<Event> events = inbox.Take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<MoveExperts>(events[0]).slots, want.next);
}

// Two layers of experts, of 3 and 5 matrices of 1 KiB, and what does not move.
class MovingExperts : public ::testing::Test {
 protected:
  MovingExperts() {
    const auto add = [&](std::string_view part, int32_t layer, int64_t count) {
      Weight& weight = weights_.emplace_back();
      weight.matrix = {.format = ops::WeightFormat::kF32, .count = count, .n = 16, .k = 16};
      binding_.weights.push_back({.weight = &weight, .spec = {.part = part, .layer = layer}});
    };
    add("experts", 1, 3);
    add("experts", 2, 4);
    add("experts", 2, 1);
    add("attention", 2, 90);
    add("experts", -1, 80);  // of a draft head
    options_.mesh = {.dp = 2, .ep = 2};
    options_.balance_experts = true;
  }
  Result<int64_t> Bytes() { return MoveBytesOf(options_, SpecWithExperts(), binding_); }
  std::string Refusal() {
    const Result<int64_t> bytes = Bytes();
    if (bytes) return "";
    EXPECT_EQ(bytes.error().field, "balance_experts");
    return bytes.error().message;
  }

  std::deque<Weight> weights_;
  Binding binding_;
  EngineOptions options_;
};

TEST_F(MovingExperts, NeedTheLargestLayerAndTheMessagesOfAStep) {
  options_.balance_step_bytes = 1 << 16;
  ASSERT_TRUE(Bytes());
  EXPECT_EQ(*Bytes(), 5 * 1024 + 2 * (1 << 16));
}

TEST_F(MovingExperts, StepsHaveAsManyBytesAsTheRanksWaitFor) {
  for (const auto& [bytes, seconds, said] : std::vector<std::tuple<int64_t, int32_t, const char*>>{
           {(1 << 16) - 1, 10, "from 64K to 1G"},
           {1 << 16, 10, ""},
           {int64_t{1} << 30, 32, ""},
           {(int64_t{1} << 30) + 1, 100, "from 64K to 1G"},
           {int64_t{1} << 30, 31, "choose at most 32M for each second, 992M"},
           {int64_t{32} << 20, 1, ""},
           {(int64_t{32} << 20) + 1, 1, "at most 32M for each second, 32M"}}) {
    options_.balance_step_bytes = bytes;
    options_.rank_seconds = seconds;
    EXPECT_EQ(Refusal().empty(), *said == '\0') << bytes << " in " << seconds << ": " << Refusal();
    EXPECT_THAT(Refusal(), HasSubstr(said));
  }
}

TEST_F(MovingExperts, NeedRanksThatShareThem) {
  options_.mesh = {.dp = 2};
  EXPECT_THAT(Refusal(), HasSubstr("--ep of at least 2"));
}

TEST_F(MovingExperts, FlagsAboutMovesNeedTheMoves) {
  options_.balance_experts = false;
  EXPECT_EQ(*Bytes(), 0);
  const auto refused = [&](auto change) {
    const EngineOptions kept = options_;
    change(options_);
    std::string said = Refusal();
    options_ = kept;
    return said;
  };
  EXPECT_THAT(refused([](EngineOptions& o) { o.balance.every_steps = 10; }),
              HasSubstr("--balance-every has no effect without --balance-experts"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.balance.below = 0.5; }),
              HasSubstr("--balance-below has no effect"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.balance_step_bytes = 1 << 16; }),
              HasSubstr("--balance-step-bytes has no effect"));
}

}  // namespace
}  // namespace braid
