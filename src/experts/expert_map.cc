// Maps of one layer and what they make of a load.
#include "experts/expert_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/math.h"
#include "base/rng.h"

namespace braid {
namespace {

// Gives each rank of `sources` one of `slots`, as evenly as possible; both begin where the draw
// says, so that different experts do not load the same replicas with the remainder.
void Spread(std::span<const int32_t> sources, std::span<const int32_t> slots, uint64_t draw,
            int32_t expert, int32_t experts, std::vector<int32_t>& choices) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const size_t at = (i + static_cast<size_t>(draw % slots.size())) % slots.size();
    choices[static_cast<size_t>(sources[i] * experts + expert)] = slots[at];
  }
}

}  // namespace

Status CheckShape(const ExpertShape& s) {
  const auto bad = [](std::string message) {
    return Error{ErrorCode::kInvalid, std::move(message)};
  };
  if (s.experts < 1 || s.ranks < 1 || s.ranks_per_node < 1) {
    return bad(fmt::format("{} experts on {} ranks, {} a node: each must be at least 1", s.experts,
                           s.ranks, s.ranks_per_node));
  }
  if (const int64_t pairs = int64_t{s.experts} * s.ranks; pairs > INT32_MAX) {
    return bad(fmt::format("{} experts on {} ranks are {} choices of replicas; at most {} can be",
                           s.experts, s.ranks, pairs, INT32_MAX));
  }
  if (s.ranks % s.ranks_per_node != 0) {
    return bad(
        fmt::format("{} ranks are no whole number of nodes of {}", s.ranks, s.ranks_per_node));
  }
  if (s.redundant < 0 || s.redundant > kRedundantExpertsMax) {
    return bad(
        fmt::format("{} redundant experts; it must be 0 to {}", s.redundant, kRedundantExpertsMax));
  }
  if (s.slots() % s.ranks != 0) {
    const int64_t next = RoundUp(s.experts, s.ranks) - s.experts;
    return bad(fmt::format("{} experts and {} redundant ones do not divide among {} ranks; {}",
                           s.experts, s.redundant, s.ranks,
                           next <= kRedundantExpertsMax
                               ? fmt::format("{} redundant ones would", next)
                               : "take fewer ranks"));
  }
  return {};
}

Status CheckSlots(const ExpertShape& shape, std::span<const int32_t> slots) {
  if (slots.size() != static_cast<size_t>(shape.slots())) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("a placement of {} slots; {} experts and {} "
                             "redundant ones need {}",
                             slots.size(), shape.experts, shape.redundant, shape.slots())};
  }
  std::vector<bool> held(static_cast<size_t>(shape.experts));
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0 || slots[i] >= shape.experts) {
      return Error{ErrorCode::kInvalid, fmt::format("slot {} holds expert {}; experts are 0 to {}",
                                                    i, slots[i], shape.experts - 1)};
    }
    held[static_cast<size_t>(slots[i])] = true;
  }
  const auto missing = std::ranges::find(held, false);
  if (missing == held.end()) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("no slot holds expert {}; each needs one", missing - held.begin())};
}

LayerSlots InOrder(const ExpertShape& shape) {
  LayerSlots slots(static_cast<size_t>(shape.slots()));
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i] = static_cast<int32_t>(i % static_cast<size_t>(shape.experts));
  }
  return slots;
}

Replicas::Replicas(const ExpertShape& shape, std::span<const int32_t> slots)
    : begin_(static_cast<size_t>(shape.experts) + 1), slots_(slots.size()) {
  for (const int32_t expert : slots) ++begin_[static_cast<size_t>(expert) + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
  for (size_t i = 0; i < slots.size(); ++i) {
    slots_[static_cast<size_t>(next[static_cast<size_t>(slots[i])]++)] = static_cast<int32_t>(i);
  }
}

std::vector<int32_t> ReplicaChoices(const ExpertShape& shape, std::span<const int32_t> slots,
                                    uint64_t seed) {
  const Replicas replicas(shape, slots);
  std::vector<int32_t> choices(static_cast<size_t>(shape.ranks * shape.experts), -1);
  std::vector<int32_t> near, sources, elsewhere;
  for (int32_t e = 0; e < shape.experts; ++e) {
    const std::span<const int32_t> all = replicas.Of(e);
    for (const int32_t slot : std::vector<int32_t>(all.rbegin(), all.rend())) {
      choices[static_cast<size_t>(shape.RankOf(slot) * shape.experts + e)] = slot;  // its own
    }
    elsewhere.clear();
    for (int32_t node = 0; node < shape.nodes(); ++node) {
      near.clear();
      sources.clear();
      for (const int32_t slot : all) {
        if (shape.NodeOf(shape.RankOf(slot)) == node) near.push_back(slot);
      }
      for (int32_t r = node * shape.ranks_per_node; r < (node + 1) * shape.ranks_per_node; ++r) {
        if (choices[static_cast<size_t>(r * shape.experts + e)] < 0) sources.push_back(r);
      }
      if (near.empty()) {
        elsewhere.insert(elsewhere.end(), sources.begin(), sources.end());
        continue;
      }
      const auto draw = RandomBits(seed, static_cast<uint64_t>(e * shape.nodes() + node));
      Spread(sources, near, draw, e, shape.experts, choices);
    }
    Spread(elsewhere, all, RandomBits(~seed, static_cast<uint64_t>(e)), e, shape.experts, choices);
  }
  return choices;
}

std::vector<double> SlotLoads(const ExpertShape& shape, std::span<const int32_t> choices,
                              std::span<const double> expert_loads) {
  CHECK(choices.size() == static_cast<size_t>(shape.ranks * shape.experts));
  std::vector<double> loads(static_cast<size_t>(shape.slots()));
  for (size_t i = 0; i < choices.size(); ++i) {
    loads[static_cast<size_t>(choices[i])] +=
        expert_loads[i % static_cast<size_t>(shape.experts)] / shape.ranks;
  }
  return loads;
}

std::vector<double> RankLoads(const ExpertShape& shape, std::span<const int32_t> slots,
                              std::span<const double> expert_loads) {
  const Replicas replicas(shape, slots);
  std::vector<double> loads(static_cast<size_t>(shape.ranks));
  for (size_t i = 0; i < slots.size(); ++i) {
    loads[static_cast<size_t>(shape.RankOf(static_cast<int32_t>(i)))] +=
        expert_loads[static_cast<size_t>(slots[i])] /
        static_cast<double>(replicas.Of(slots[i]).size());
  }
  return loads;
}

std::vector<double> ChosenLoads(const ExpertShape& shape, std::span<const int32_t> choices,
                                std::span<const double> expert_loads) {
  std::vector<double> loads(static_cast<size_t>(shape.ranks));
  const std::vector<double> slots = SlotLoads(shape, choices, expert_loads);
  for (size_t i = 0; i < slots.size(); ++i) {
    loads[static_cast<size_t>(shape.RankOf(static_cast<int32_t>(i)))] += slots[i];
  }
  return loads;
}

double Balancedness(std::span<const double> rank_loads) {
  const double most = *std::ranges::max_element(rank_loads);
  const double sum = std::accumulate(rank_loads.begin(), rank_loads.end(), 0.0);
  return most > 0 ? sum / (static_cast<double>(rank_loads.size()) * most) : 1;
}

}  // namespace braid
