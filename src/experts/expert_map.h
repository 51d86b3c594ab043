// Where the experts of a layer lie. A router picks logical experts; a placement says which expert
// each physical slot holds, so an expert may have several replicas. Slots are counted rank by rank.
// For each rank that sends tokens the choice among replicas is fixed, so a placement never changes
// an answer, only who computes it. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace braid {

// The ranks that share the experts of a layer: whole nodes of equally many ranks.
struct ExpertShape {
  int32_t experts = 1;
  int32_t redundant = 0;  // slots beyond one for each expert
  int32_t ranks = 1;
  int32_t ranks_per_node = 1;

  int32_t slots() const { return experts + redundant; }
  int32_t slots_per_rank() const { return slots() / ranks; }
  int32_t nodes() const { return ranks / ranks_per_node; }
  int32_t RankOf(int32_t slot) const { return slot / slots_per_rank(); }
  int32_t NodeOf(int32_t rank) const { return rank / ranks_per_node; }
  bool operator==(const ExpertShape&) const = default;
};

inline constexpr int32_t kRedundantExpertsMax = 128;

// The error says what does not divide, and the next number of redundant experts that would do.
Status CheckShape(const ExpertShape& shape);

// The expert of each slot of a layer.
using LayerSlots = std::vector<int32_t>;

// Whether the slots have the shape's size and hold every expert.
Status CheckSlots(const ExpertShape& shape, std::span<const int32_t> slots);

// As many slots as experts in their order; the redundant ones hold the first experts again.
LayerSlots InOrder(const ExpertShape& shape);

// The slots of each expert, ascending. The slots must be a placement of the shape (CheckSlots).
class Replicas {
 public:
  Replicas(const ExpertShape& shape, std::span<const int32_t> slots);
  std::span<const int32_t> Of(int32_t expert) const {
    const auto e = static_cast<size_t>(expert);
    return std::span(slots_).subspan(static_cast<size_t>(begin_[e]),
                                     static_cast<size_t>(begin_[e + 1] - begin_[e]));
  }

 private:
  std::vector<int32_t> begin_, slots_;
};

// The seed by which ranks choose replicas; each layer adds its number in the model.
inline constexpr uint64_t kReplicaSeed = 42;

// Which slot each rank sends a token for an expert to: [rank * experts + expert]. A rank that holds
// a replica takes it; a rank whose node holds some takes one of those; others take any. Replicas
// of a node, and those for ranks of other nodes, get numbers of ranks that differ by one at most,
// in an order that the seed decides.
std::vector<int32_t> ReplicaChoices(const ExpertShape& shape, std::span<const int32_t> slots,
                                    uint64_t seed);

// What each slot computes if every rank sends an equal part of the load to the replica that it
// chooses.
std::vector<double> SlotLoads(const ExpertShape& shape, std::span<const int32_t> choices,
                              std::span<const double> expert_loads);

// What each rank computes if the replicas of an expert share its load evenly.
std::vector<double> RankLoads(const ExpertShape& shape, std::span<const int32_t> slots,
                              std::span<const double> expert_loads);
// The same by SlotLoads.
std::vector<double> ChosenLoads(const ExpertShape& shape, std::span<const int32_t> choices,
                                std::span<const double> expert_loads);

// Mean over maximum: the part of the time that the average rank works; 1 if there is no load.
double Balancedness(std::span<const double> rank_loads);

}  // namespace braid
