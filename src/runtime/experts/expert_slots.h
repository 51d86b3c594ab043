// Where the experts lie on several ranks: which slots hold which expert, and to which of them this
// rank sends the tokens of each (MoeFfnWeights::slot_of). Engine thread.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "experts/expert_map.h"
#include "model/spec.h"
#include "model/weights.h"
#include "runtime/experts/rank_counts.h"

namespace braid {

struct ExpertSlots {
  int32_t redundant = 0;       // slots of a layer beyond one for each expert
  int32_t ranks_per_node = 0;  // of those that share experts; 0: all
  // By layer of the model; where it says nothing, experts are in order (InOrder).
  std::vector<LayerSlots> placement;
};

// The shape of a layer's slots among the ranks of the group.
ExpertShape ShapeOf(const ExpertSlots& slots, int32_t experts, const Communicator& group);

// Chooses among the replicas of a layer's experts for this rank of the group. All ranks that hold
// experts together choose by the same seed. Returns the choices of all (ReplicaChoices).
std::vector<int32_t> ChooseReplicas(const ExpertShape& shape, const LayerSlots& slots,
                                    int32_t layer, int32_t rank, MoeFfnWeights& weights);

// Of all layers, those of a draft head included. `loads` may be null.
void ChooseAllReplicas(const ModelSpec& spec, const ExpertSlots& slots, const Communicator& group,
                       ModelWeights& weights, RankCounts* loads);

}  // namespace braid
