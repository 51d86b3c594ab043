// See the header.
#include "runtime/experts/expert_slots.h"

#include <utility>
#include <variant>

#include "base/check.h"

namespace braid {

ExpertShape ShapeOf(const ExpertSlots& slots, int32_t experts, const Communicator& group) {
  const int32_t node = slots.ranks_per_node > 0 ? slots.ranks_per_node : group.size();
  return {.experts = experts,
          .redundant = slots.redundant,
          .ranks = group.size(),
          .ranks_per_node = node};
}

std::vector<int32_t> ChooseReplicas(const ExpertShape& shape, const LayerSlots& slots,
                                    int32_t layer, int32_t rank, MoeFfnWeights& weights) {
  std::vector<int32_t> choices =
      ReplicaChoices(shape, slots, kReplicaSeed + static_cast<uint64_t>(layer));
  const auto own = choices.begin() + rank * shape.experts;
  weights.slot_of.assign(own, own + shape.experts);
  return choices;
}

void ChooseAllReplicas(const ModelSpec& spec, const ExpertSlots& slots, const Communicator& group,
                       ModelWeights& weights, RankCounts* loads) {
  size_t index = 0;  // among the layers with experts
  const auto choose = [&](const LayerSpec& layer, LayerWeights& w, size_t number) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe == nullptr) return;
    const ExpertShape shape = ShapeOf(slots, moe->experts, group);
    const bool placed = number < slots.placement.size() && !slots.placement[number].empty();
    const LayerSlots of = placed ? slots.placement[number] : InOrder(shape);
    auto& experts = std::get<MoeFfnWeights>(w.ffn);
    CHECK(experts.down.matrix.count == shape.slots_per_rank(), "{} experts in {} slots",
          experts.down.matrix.count, shape.slots_per_rank());
    std::vector<int32_t> choices =
        ChooseReplicas(shape, of, static_cast<int32_t>(number), group.rank(), experts);
    if (loads != nullptr && number < spec.layers.size()) {
      loads->SetChoices(index++, shape, std::move(choices));
    }
  };
  for (size_t i = 0; i < spec.layers.size(); ++i) choose(spec.layers[i], weights.layers[i], i);
  if (!spec.draft || !spec.draft->used) return;
  for (size_t i = 0; i < spec.draft->layers.size(); ++i) {
    choose(spec.draft->layers[i], weights.draft.layers[i], spec.layers.size() + i);
  }
}

}  // namespace braid
