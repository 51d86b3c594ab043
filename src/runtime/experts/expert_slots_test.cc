// To which replicas of its experts a rank sends tokens, layer by layer.
#include "runtime/experts/expert_slots.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "comm/thread_group.h"

namespace braid {
namespace {

TEST(ExpertSlots, ANodeHasAllRanksUnlessTheFileSaysOtherwise) {
  ThreadGroup group(4, std::chrono::seconds(1));
  const ExpertShape all = ShapeOf({.redundant = 2}, 6, group.rank(1));
  EXPECT_EQ(all, (ExpertShape{.experts = 6, .redundant = 2, .ranks = 4, .ranks_per_node = 4}));
  EXPECT_EQ(ShapeOf({.ranks_per_node = 2}, 8, group.rank(1)),
            (ExpertShape{.experts = 8, .redundant = 0, .ranks = 4, .ranks_per_node = 2}));
}

// A dense layer, two with experts, and a draft head that has some.
class ChosenReplicas : public ::testing::Test {
 protected:
  ChosenReplicas() {
    LayerWeights expert_weights;
    MoeFfnWeights moe;
    moe.down.matrix.count = kShape.slots_per_rank();
    expert_weights.ffn = moe;
    spec_.layers.resize(3);
    weights_.layers.resize(1);
    for (const size_t i : {1, 2}) {
      spec_.layers[i].ffn = MoeFfn{.experts = kShape.experts};
      weights_.layers.push_back(expert_weights);
    }
    spec_.draft.emplace().layers.resize(1);
    spec_.draft->layers[0].ffn = MoeFfn{.experts = kShape.experts};
    weights_.draft.layers.push_back(expert_weights);
  }
  const std::vector<int32_t>& Chosen(const LayerWeights& layer) const {
    return std::get<MoeFfnWeights>(layer.ffn).slot_of;
  }
  // Of the second rank.
  static std::vector<int32_t> Own(const LayerSlots& slots, uint64_t layer) {
    const std::vector<int32_t> all = ReplicaChoices(kShape, slots, kReplicaSeed + layer);
    return {all.begin() + kShape.experts, all.begin() + 2 * kShape.experts};
  }

  static constexpr ExpertShape kShape{
      .experts = 6, .redundant = 6, .ranks = 4, .ranks_per_node = 4};
  ThreadGroup group_{4, std::chrono::seconds(1)};
  ModelSpec spec_;
  ModelWeights weights_;
};

TEST_F(ChosenReplicas, AreThoseOfThePlacementElseOfTheOrder) {
  const LayerSlots placed = {5, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 5};
  const ExpertSlots slots{.redundant = 6, .placement = {{}, placed}};
  ChooseAllReplicas(spec_, slots, group_.rank(1), weights_, nullptr);
  EXPECT_EQ(Chosen(weights_.layers[1]), Own(placed, 1));
  EXPECT_EQ(Chosen(weights_.layers[2]), Own(InOrder(kShape), 2));
  EXPECT_TRUE(Chosen(weights_.draft.layers[0]).empty()) << "it is not used";
  spec_.draft->used = true;
  ChooseAllReplicas(spec_, slots, group_.rank(1), weights_, nullptr);
  EXPECT_EQ(Chosen(weights_.draft.layers[0]), Own(InOrder(kShape), 3));
  const std::vector<int32_t> all =
      ChooseReplicas(kShape, placed, 1, 1, std::get<MoeFfnWeights>(weights_.layers[2].ffn));
  EXPECT_EQ(all, ReplicaChoices(kShape, placed, kReplicaSeed + 1)) << "those of all ranks";
  EXPECT_EQ(Chosen(weights_.layers[2]), Own(placed, 1));
}

}  // namespace
}  // namespace braid
