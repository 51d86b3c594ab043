// Which expert goes into which slot, from the load of each expert: the two published algorithms
// (hierarchical and global), and one that changes a placement as little as a wanted balance allows.
// Results depend on nothing but the arguments, so all ranks compute the same. Pure; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "experts/expert_map.h"

namespace braid {

// Items into packs of equally many: heaviest first, each into the lightest pack with room; of
// equals the first. `place` is the item's number in its pack. Packs divide the number of items.
struct Packing {
  std::vector<int32_t> pack, place;
};
Packing PackBalanced(std::span<const double> weights, int32_t packs);

// Slots beyond the number of experts go one after the other to the expert with the highest load per
// replica that has fewer than copies_max of them, of equals the first.
struct Replication {
  std::vector<int32_t> expert, replica;  // of each slot: which expert, which of its replicas
  std::vector<int32_t> count;            // of each expert
};
Replication Replicate(std::span<const double> loads, int32_t slots,
                      int32_t copies_max = std::numeric_limits<int32_t>::max());

// Groups of experts are packed onto nodes, then the experts of a node are replicated and packed
// onto its ranks. Nodes must divide the groups and the slots, groups the experts.
LayerSlots PlaceHierarchical(const ExpertShape& shape, int32_t groups,
                             std::span<const double> loads);
// All experts are replicated and packed onto all ranks. Puts replicas of an expert on one rank if
// that is where they fit.
LayerSlots PlaceGlobal(const ExpertShape& shape, std::span<const double> loads);

// Hierarchical where groups and nodes allow it, as published; otherwise global.
LayerSlots PlacePublished(const ExpertShape& shape, int32_t groups, std::span<const double> loads);

// Changes `current` until its balancedness under `loads` is `wanted`, or nearly what a placement
// from nothing reaches if that is less. Moves few experts: of several ways it takes the one that
// moves fewest of those that are good enough, else the most balanced one. The fullest rank never
// has more load than in `current`. No rank gets a second replica of an expert that it holds unless
// there are more than ranks.
LayerSlots PlaceIncremental(const ExpertShape& shape, std::span<const int32_t> current,
                            std::span<const double> loads, double wanted);

// `next` with its ranks renumbered, and the slots of each rank reordered, so that much stays where
// it is in `current`. Loads of ranks are permuted, no more. Ranks change only within their node if
// `within_nodes`.
LayerSlots Align(const ExpertShape& shape, std::span<const int32_t> current,
                 std::span<const int32_t> next, bool within_nodes);

// Experts that a rank needs in `next` and does not hold in `current`.
int64_t Received(const ExpertShape& shape, std::span<const int32_t> current,
                 std::span<const int32_t> next);

}  // namespace braid
