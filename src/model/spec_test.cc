// What is derived from a spec: the list of weights, its units, costs and parameters.
#include "model/spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/families/families.h"

namespace braid {
namespace {

ModelSpec ExampleOf(const Family& family) {
  Result<ModelSpec> spec =
      ParseModelSpec(json::serialize(family.example(ExampleSize::kTiny)), "example");
  CHECK(spec, "{}", spec.error().message);
  return *std::move(spec);
}

TEST(WeightUnits, CoverTheRowsOfEveryDividedWeight) {
  for (const Family& family : Families()) {
    for (const WeightSpec& weight : WeightsOf(ExampleOf(family))) {
      if (weight.units.empty()) continue;
      int64_t rows = 0;
      for (const RowUnits& units : weight.units) rows += units.count * units.rows;
      EXPECT_EQ(rows, weight.count * weight.n) << family.name << ": " << weight.name;
    }
  }
}

// Rows that ranks may divide only head by head: all of a mixer's but the output projection's.
TEST(WeightUnits, NeverCutAHeadOrAnExpert) {
  for (const Family& family : Families()) {
    const ModelSpec spec = ExampleOf(family);
    for (const LayerSpec& layer : spec.layers) {
      WeightList list;
      std::visit(
          [&](const auto& mixer) {
            typename std::decay_t<decltype(mixer)>::Weights weights;
            ListWeights(mixer, {spec.hidden, layer.prefix}, weights, list);
            for (const WeightEntry& entry : list) {
              const bool single = std::ranges::any_of(entry.spec.units, [](const RowUnits& units) {
                return units.unit == ShardUnit::kRow || units.unit == ShardUnit::kExpert;
              });
              EXPECT_EQ(single, entry.weight == &weights.out) << entry.spec.name;
            }
          },
          layer.mixer);
    }
  }
}

TEST(WeightUnits, NameTheHeadsOfGroupedAttention) {
  const FullAttention attention{.heads = 6, .kv_heads = 2, .head_dim = 8, .output_gate = true};
  FullAttentionWeights weights;
  WeightList list;
  ListWeights(attention, {32, "l."}, weights, list);
  const std::vector<RowUnits>& units = list[0].spec.units;
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].unit, ShardUnit::kHead);
  EXPECT_EQ(units[0].count, 6);
  EXPECT_EQ(units[0].rows, 16);
  for (size_t i : {1, 2}) {
    EXPECT_EQ(units[i].unit, ShardUnit::kKeyHead);
    EXPECT_EQ(units[i].count, 2);
    EXPECT_EQ(units[i].rows, 8);
  }
}

TEST(ListWeights, GivesEveryWeightAMemberOfItsOwn) {
  for (const Family& family : Families()) {
    ModelWeights weights;
    std::set<const Weight*> members;
    const WeightList list = ListWeights(ExampleOf(family), weights);
    for (const WeightEntry& entry : list) members.insert(entry.weight);
    EXPECT_EQ(members.size(), list.size()) << family.name;
    EXPECT_TRUE(members.contains(&weights.embedding) && members.contains(&weights.final_norm));
    for (const LayerWeights& layer : weights.layers) {
      EXPECT_TRUE(members.contains(&layer.input_norm) && members.contains(&layer.post_norm));
    }
  }
}

TEST(ListWeights, HasAHeadUnlessTheEmbeddingIsTheHead) {
  ModelSpec spec{.hidden = 4, .vocabulary = 8};
  EXPECT_EQ(WeightsOf(spec).size(), 3u);
  EXPECT_EQ(WeightsOf(spec).back().name, "lm_head");
  EXPECT_EQ(WeightsOf(spec).back().part, "head");
  spec.tied_head = true;
  EXPECT_EQ(WeightsOf(spec).size(), 2u);
  EXPECT_EQ(WeightsOf(spec).back().part, "norms");
}

MoeFfn SmallMoe() {
  return {.experts = 8, .top_k = 2, .width = 16, .shared_width = 24, .shared_gate = true};
}

TEST(Costs, OfAMixtureAreItsChosenExpertsTheSharedOneAndTheRouter) {
  const std::vector<Cost> one = CostsOf(SmallMoe(), 10, {.tokens = 1, .bytes_per_weight = 2});
  ASSERT_EQ(one.size(), 1u);
  // 2 experts of 3 * 10 * 16 weights, 3 * 10 * 24 shared ones, 10 * 8 of the router.
  EXPECT_DOUBLE_EQ(one[0].flops, 2.0 * (2 * 480 + 720 + 80));
  EXPECT_DOUBLE_EQ(one[0].bytes, 2.0 * (2 * 480 + 720 + 80));
  // Two tokens choose 8 (1 - (3/4)^2) = 3.5 distinct experts on average.
  const std::vector<Cost> two = CostsOf(SmallMoe(), 10, {.tokens = 2, .bytes_per_weight = 1});
  EXPECT_DOUBLE_EQ(two[0].flops, 2 * one[0].flops);
  EXPECT_DOUBLE_EQ(two[0].bytes, 3.5 * 480 + 720 + 2 * 80);
}

TEST(Costs, OfADenseFeedForwardAreItsThreeMatrices) {
  const std::vector<Cost> costs =
      CostsOf(DenseFfn{.width = 16}, 10, {.tokens = 3, .bytes_per_weight = 0.5});
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_DOUBLE_EQ(costs[0].flops, 2.0 * 480 * 3);
  EXPECT_DOUBLE_EQ(costs[0].bytes, 0.5 * 480);
}

TEST(Costs, OfAttentionGrowWithTheContext) {
  const FullAttention attention{.heads = 4, .kv_heads = 2, .head_dim = 8};
  const StepShape shape{
      .tokens = 6, .sequences = 2, .context_tokens = 100, .kv_dtype = DType::kF32};
  const std::vector<Cost> costs = CostsOf(attention, 16, shape);
  ASSERT_EQ(costs.size(), 2u);
  // q 32, k 16, v 16 rows of 16, and the output's 16 of 32.
  EXPECT_DOUBLE_EQ(costs[0].flops, 2.0 * 6 * (64 * 16 + 16 * 32));
  // Each of 6 tokens meets 100 earlier ones and 2 of its own 3 on average: products and sums.
  EXPECT_DOUBLE_EQ(costs[1].flops, 4.0 * 6 * 102 * 32);
  // 206 tokens of two heads' keys and values.
  EXPECT_DOUBLE_EQ(costs[1].bytes, 206.0 * 2 * 2 * 8 * 4);
}

TEST(Costs, OfTheHeadAreThoseOfTheRowsThatWantLogits) {
  const ModelSpec spec{.hidden = 4, .vocabulary = 8};
  const StepShape shape{.tokens = 5, .sequences = 1, .bytes_per_head_weight = 2};
  EXPECT_DOUBLE_EQ(CostsOf(spec, shape, 3)[0].flops, 2.0 * 3 * 32);
  EXPECT_DOUBLE_EQ(CostsOf(spec, shape, 3)[0].bytes, 2.0 * (32 + 5 * 4));
  EXPECT_DOUBLE_EQ(CostsOf(spec, shape, 0)[0].bytes, 2.0 * 5 * 4);
}

TEST(Parameters, ActiveOnesAreThoseOfTheChosenExperts) {
  ModelSpec spec{.hidden = 10, .vocabulary = 7, .tied_head = true};
  const ParameterCount none = ParametersOf(spec);
  EXPECT_EQ(none.total, 7 * 10 + 10);
  EXPECT_EQ(none.embedding, 70);
  spec.layers.push_back({.prefix = "l.",
                         .mixer = FullAttention{.heads = 1, .kv_heads = 1, .head_dim = 2},
                         .ffn = SmallMoe()});
  const ParameterCount count = ParametersOf(spec);
  const int64_t mixer = 6 * 10 + 10 * 2, norms = 2 * 10, router = 80, shared = 720 + 10;
  EXPECT_EQ(count.total - none.total, mixer + norms + router + shared + 8 * 480);
  EXPECT_EQ(count.active - none.active, mixer + norms + router + shared + 2 * 480);
  spec.tied_head = false;
  EXPECT_EQ(ParametersOf(spec).total, count.total + 70);
  EXPECT_EQ(ParametersOf(spec).active, count.active);
}

TEST(CachePlan, StateBlocksHaveRoomForTheInputsThatRejectedDraftsTakeAway) {
  ModelSpec spec;
  spec.layers.push_back(
      {.prefix = "l.",
       .mixer =
           LinearAttention{
               .key_heads = 1, .value_heads = 2, .key_dim = 8, .value_dim = 16, .conv_width = 4},
       .ffn = DenseFfn{.width = 8}});
  const int64_t channels = 2 * 8 + 2 * 16, rows = 2 * 64 * (8 + 16 + 1);
  auto bytes = [&] { return CachePlanOf(spec, DType::kF32).groups[0].block_bytes; };
  EXPECT_EQ(bytes(), 4 * (rows + 3 * channels));
  PlanState(spec, 5);
  EXPECT_EQ(bytes(), 4 * (rows + (3 + 5) * channels));
}

TEST(CachePlan, LayersOfOneKindShareAGroupAndLieBehindEachOther) {
  const FullAttention attention{.heads = 2, .kv_heads = 1, .head_dim = 8};
  const LinearAttention linear{.key_heads = 1, .value_heads = 1, .key_dim = 4, .value_dim = 4};
  ModelSpec spec;
  for (const Mixer& mixer : {Mixer(attention), Mixer(linear), Mixer(attention)}) {
    spec.layers.push_back({.prefix = "l.", .mixer = mixer, .ffn = DenseFfn{.width = 8}});
  }
  const CachePlan plan = CachePlanOf(spec, DType::kF32);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].name, "attention");
  EXPECT_EQ(plan.groups[1].name, "state");
  const int64_t bytes = CacheOf(attention, DType::kF32).block_bytes;
  EXPECT_EQ(plan.groups[0].block_bytes, 2 * bytes);
  EXPECT_EQ(plan.slices[0].byte_offset, 0);
  EXPECT_EQ(plan.slices[2].byte_offset, bytes);
  EXPECT_EQ(plan.slices[2].group, plan.slices[0].group);
  EXPECT_EQ(plan.slices[1].group, 1);
}

TEST(CachePlan, AUsedDraftHeadHasTheBeginningOfTheAttentionBlocks) {
  const FullAttention attention{.heads = 2, .kv_heads = 1, .head_dim = 8};
  const LinearAttention linear{.key_heads = 1, .value_heads = 1, .key_dim = 4, .value_dim = 4};
  ModelSpec spec{.hidden = 24};
  for (const Mixer& mixer : {Mixer(linear), Mixer(attention)}) {
    spec.layers.push_back({.prefix = "l.", .mixer = mixer, .ffn = DenseFfn{.width = 8}});
  }
  const CachePlan without = CachePlanOf(spec, DType::kF32);
  spec.draft = DraftSpec{.prefix = "mtp.", .layers = {spec.layers[1]}};
  EXPECT_EQ(CachePlanOf(spec, DType::kF32).groups[1].block_bytes, without.groups[1].block_bytes);
  UseDraftHead(spec);
  const CachePlan plan = CachePlanOf(spec, DType::kF32);
  const int64_t bytes = CacheOf(attention, DType::kF32).block_bytes, state = 128;  // 24 floats
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].name, "state") << "the order is that without a head";
  EXPECT_EQ(plan.groups[1].block_bytes, without.groups[1].block_bytes + bytes + state);
  EXPECT_EQ(plan.draft.layers[0].group, 1);
  EXPECT_EQ(plan.draft.layers[0].byte_offset, 0);
  EXPECT_TRUE(plan.draft.layers[0].skip_first);
  EXPECT_EQ(plan.draft.last_state.byte_offset, bytes);
  EXPECT_EQ(plan.draft.bytes, bytes + state);
  EXPECT_EQ(plan.slices[1].byte_offset, bytes + state);
  EXPECT_FALSE(plan.slices[1].skip_first);
}

TEST(DraftHead, OneLayerOfAttentionCanRun) {
  const FullAttention attention{.heads = 2, .kv_heads = 1, .head_dim = 8};
  const LayerSpec layer{.prefix = "mtp.layers.0.", .mixer = attention, .ffn = DenseFfn{.width = 8}};
  ModelSpec spec{.hidden = 24};
  EXPECT_FALSE(HasDraftHead(spec));
  spec.draft = DraftSpec{.prefix = "mtp.", .layers = {layer}};
  EXPECT_TRUE(HasDraftHead(spec));
  spec.draft->layers.push_back(layer);
  EXPECT_FALSE(HasDraftHead(spec));
}

TEST(WeightsOf, HasThoseOfADraftHeadWhereItIsUsed) {
  ModelSpec spec = ExampleOf(*FindFamily("qwen3_5"));
  ASSERT_TRUE(HasDraftHead(spec));
  const size_t without = WeightsOf(spec).size();
  UseDraftHead(spec);
  const std::vector<WeightSpec> weights = WeightsOf(spec);
  EXPECT_EQ(weights.size(), without + DraftWeightsOf(spec).size());
  const auto of_head = [](const WeightSpec& weight) { return weight.part == "draft_head"; };
  EXPECT_EQ(static_cast<size_t>(std::ranges::count_if(weights, of_head)),
            DraftWeightsOf(spec).size());
  EXPECT_EQ(weights.front().part, "embedding");
  EXPECT_NE(weights.back().part, "draft_head");
}

}  // namespace
}  // namespace braid
