// The published algorithms, and aligning a placement with one that is in force.
#include "experts/placement.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace braid {
namespace {

std::vector<int32_t> Descending(std::span<const double> weights) {
  std::vector<int32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return weights[static_cast<size_t>(a)] > weights[static_cast<size_t>(b)];
  });
  return order;
}

// Replicates the experts of a node onto `slots` and packs those onto its ranks; by position the
// number of the expert in `loads`.
LayerSlots PlaceOnRanks(std::span<const double> loads, int32_t slots, int32_t ranks) {
  const Replication replicated = Replicate(loads, slots);
  std::vector<double> weights;
  for (const int32_t e : replicated.expert) {
    weights.push_back(loads[static_cast<size_t>(e)] / replicated.count[static_cast<size_t>(e)]);
  }
  const Packing packing = PackBalanced(weights, ranks);
  LayerSlots placed(static_cast<size_t>(slots));
  for (size_t i = 0; i < placed.size(); ++i) {
    placed[static_cast<size_t>(packing.pack[i] * (slots / ranks) + packing.place[i])] =
        replicated.expert[i];
  }
  return placed;
}

// How many of `b`'s experts `a` has, each replica counted once.
int32_t Overlap(std::span<const int32_t> a, std::span<const int32_t> b) {
  std::vector<int32_t> rest(a.begin(), a.end());
  int32_t common = 0;
  for (const int32_t expert : b) {
    const auto at = std::ranges::find(rest, expert);
    if (at == rest.end()) continue;
    rest.erase(at);
    ++common;
  }
  return common;
}

// The experts of `next` in an order in which as many as possible keep their place in `current`.
void AlignRank(std::span<const int32_t> current, std::span<const int32_t> next,
               std::span<int32_t> out) {
  std::vector<int32_t> rest(next.begin(), next.end());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto at = std::ranges::find(rest, current[i]);
    out[i] = at == rest.end() ? -1 : current[i];
    if (at != rest.end()) rest.erase(at);
  }
  auto left = rest.begin();
  for (int32_t& slot : out) {
    if (slot < 0) slot = *left++;
  }
}

}  // namespace

Packing PackBalanced(std::span<const double> weights, int32_t packs) {
  CHECK(packs > 0 && weights.size() % static_cast<size_t>(packs) == 0);
  const auto per_pack = static_cast<int32_t>(weights.size()) / packs;
  Packing out{.pack = std::vector<int32_t>(weights.size()),
              .place = std::vector<int32_t>(weights.size())};
  if (per_pack == 1) {
    std::iota(out.pack.begin(), out.pack.end(), 0);
    return out;
  }
  std::vector<double> load(static_cast<size_t>(packs));
  std::vector<int32_t> count(static_cast<size_t>(packs));
  for (const int32_t item : Descending(weights)) {
    size_t best = load.size();
    for (size_t p = 0; p < load.size(); ++p) {
      if (count[p] < per_pack && (best == load.size() || load[p] < load[best])) best = p;
    }
    const auto i = static_cast<size_t>(item);
    out.pack[i] = static_cast<int32_t>(best);
    out.place[i] = count[best]++;
    load[best] += weights[i];
  }
  return out;
}

Replication Replicate(std::span<const double> loads, int32_t slots, int32_t copies_max) {
  const auto experts = static_cast<int32_t>(loads.size());
  CHECK(slots >= experts && slots - experts <= int64_t{experts} * (int64_t{copies_max} - 1));
  Replication out{.expert = std::vector<int32_t>(loads.size()),
                  .replica = std::vector<int32_t>(loads.size()),
                  .count = std::vector<int32_t>(loads.size(), 1)};
  std::iota(out.expert.begin(), out.expert.end(), 0);
  for (int32_t slot = experts; slot < slots; ++slot) {
    size_t best = loads.size();
    for (size_t e = 0; e < loads.size(); ++e) {
      if (out.count[e] >= copies_max) continue;
      if (best == loads.size() || loads[e] / out.count[e] > loads[best] / out.count[best]) best = e;
    }
    out.expert.push_back(static_cast<int32_t>(best));
    out.replica.push_back(out.count[best]++);
  }
  return out;
}

LayerSlots PlaceHierarchical(const ExpertShape& shape, int32_t groups,
                             std::span<const double> loads) {
  const int32_t nodes = shape.nodes();
  CHECK(groups > 0 && shape.experts % groups == 0 && groups % nodes == 0);
  CHECK(shape.slots() % nodes == 0 && loads.size() == static_cast<size_t>(shape.experts));
  const int32_t group_size = shape.experts / groups;
  std::vector<double> group_loads(static_cast<size_t>(groups));
  for (size_t e = 0; e < loads.size(); ++e) {
    group_loads[e / static_cast<size_t>(group_size)] += loads[e];
  }
  const Packing packing = PackBalanced(group_loads, nodes);
  // The experts of each node, group by group.
  std::vector<std::vector<int32_t>> of_node(
      static_cast<size_t>(nodes), std::vector<int32_t>(static_cast<size_t>(shape.experts / nodes)));
  for (int32_t e = 0; e < shape.experts; ++e) {
    const auto group = static_cast<size_t>(e / group_size);
    of_node[static_cast<size_t>(packing.pack[group])]
           [static_cast<size_t>(packing.place[group] * group_size + e % group_size)] = e;
  }
  LayerSlots out;
  for (const std::vector<int32_t>& experts : of_node) {
    std::vector<double> node_loads;
    for (const int32_t e : experts) node_loads.push_back(loads[static_cast<size_t>(e)]);
    for (const int32_t at : PlaceOnRanks(node_loads, shape.slots() / nodes, shape.ranks_per_node)) {
      out.push_back(experts[static_cast<size_t>(at)]);
    }
  }
  return out;
}

LayerSlots PlaceGlobal(const ExpertShape& shape, std::span<const double> loads) {
  CHECK(loads.size() == static_cast<size_t>(shape.experts));
  return PlaceOnRanks(loads, shape.slots(), shape.ranks);
}

LayerSlots PlacePublished(const ExpertShape& shape, int32_t groups, std::span<const double> loads) {
  const bool nested = groups > 0 && shape.experts % groups == 0 && groups % shape.nodes() == 0;
  return nested ? PlaceHierarchical(shape, groups, loads) : PlaceGlobal(shape, loads);
}

LayerSlots Align(const ExpertShape& shape, std::span<const int32_t> current,
                 std::span<const int32_t> next, bool within_nodes) {
  const auto per_rank = static_cast<size_t>(shape.slots_per_rank());
  const auto ranks = static_cast<size_t>(shape.ranks);
  const auto of = [&](std::span<const int32_t> slots, size_t rank) {
    return slots.subspan(rank * per_rank, per_rank);
  };
  // Pairs of ranks by what they have in common, most first.
  std::vector<std::tuple<int32_t, size_t, size_t>> pairs;
  for (size_t here = 0; here < ranks; ++here) {
    for (size_t there = 0; there < ranks; ++there) {
      const bool near =
          shape.NodeOf(static_cast<int32_t>(here)) == shape.NodeOf(static_cast<int32_t>(there));
      if (within_nodes && !near) continue;
      pairs.emplace_back(-Overlap(of(current, here), of(next, there)), here, there);
    }
  }
  std::ranges::sort(pairs);
  LayerSlots out(next.size());
  std::vector<bool> filled(ranks), taken(ranks);
  for (const auto& [common, here, there] : pairs) {
    if (filled[here] || taken[there]) continue;
    filled[here] = taken[there] = true;
    AlignRank(of(current, here), of(next, there),
              std::span(out).subspan(here * per_rank, per_rank));
  }
  return out;
}

int64_t Received(const ExpertShape& shape, std::span<const int32_t> current,
                 std::span<const int32_t> next) {
  const auto per_rank = static_cast<size_t>(shape.slots_per_rank());
  int64_t received = 0;
  for (size_t begin = 0; begin < next.size(); begin += per_rank) {
    std::vector<int32_t> has(current.begin() + static_cast<ptrdiff_t>(begin),
                             current.begin() + static_cast<ptrdiff_t>(begin + per_rank));
    for (size_t i = begin; i < begin + per_rank; ++i) {
      if (std::ranges::find(has, next[i]) != has.end()) continue;
      has.push_back(next[i]);
      ++received;
    }
  }
  return received;
}

}  // namespace braid
