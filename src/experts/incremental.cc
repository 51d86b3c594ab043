// Balancing by few changes. Each step lowers the fullest rank by exchanging two experts, or by
// letting a slot whose expert has further replicas hold another expert. A step is taken by what it
// gains, or by what it gains per expert that moves; neither is always better, so both are tried.
// Loads of all ranks a step touches stay below what the fullest one had, so the sorted loads
// decrease and the search ends.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "experts/placement.h"

namespace braid {
namespace {

// Of the balance that a placement from nothing reaches: more is not worth moving everything for.
constexpr double kNearEnough = 0.98;
constexpr double kLeastGain = 1e-9;  // of the fullest rank's load: below it is rounding

class Rearrangement {
 public:
  Rearrangement(const ExpertShape& shape, LayerSlots slots, std::span<const double> loads)
      : shape_(shape),
        per_rank_(shape.slots_per_rank()),
        slots_(std::move(slots)),
        loads_(loads),
        holders_(loads.size()),
        rank_loads_(RankLoads(shape, slots_, loads)) {
    for (int32_t slot = 0; slot < shape.slots(); ++slot) {
      holders_[At(slots_[At(slot)])].push_back(shape.RankOf(slot));
    }
  }

  // Improves until the balancedness is `wanted`, or no step helps. An exchange counts as so many
  // replacements.
  LayerSlots Improve(double wanted, double exchange_moves) {
    exchange_moves_ = exchange_moves;
    while (Balancedness(rank_loads_) < wanted && TakeBestStep()) {
    }
    return slots_;
  }

 private:
  // Slot `a` gets the expert of `b` and the other way round; or, if `expert` >= 0, slot `a` gets
  // that expert instead of its own.
  struct Step {
    int32_t a = -1, b = -1, expert = -1;
    double gain = 0;
  };

  static size_t At(int32_t i) { return static_cast<size_t>(i); }
  int32_t ExpertOf(int32_t slot) const { return slots_[At(slot)]; }
  double Load(int32_t expert, size_t replicas) const {
    return loads_[At(expert)] / static_cast<double>(replicas);
  }
  double LoadOf(int32_t expert) const { return Load(expert, holders_[At(expert)].size()); }
  bool Holds(int32_t rank, int32_t expert) const {
    return std::ranges::find(holders_[At(expert)], rank) != holders_[At(expert)].end();
  }

  bool TakeBestStep() {
    const auto at = std::ranges::max_element(rank_loads_);
    const auto full = static_cast<int32_t>(at - rank_loads_.begin());
    Step best{.gain = *at * kLeastGain};
    for (int32_t s = full * per_rank_; s < (full + 1) * per_rank_; ++s) {
      for (int32_t t = 0; t < shape_.slots(); ++t) {
        if (shape_.RankOf(t) == full) continue;
        TryExchange(s, t, full, best);
        // The other slot becomes a replica of this expert.
        if (holders_[At(ExpertOf(t))].size() > 1) TryReplace(t, ExpertOf(s), full, best);
      }
      // This slot's expert has other replicas: it makes room for a lighter one.
      if (holders_[At(ExpertOf(s))].size() < 2) continue;
      for (int32_t e = 0; e < shape_.experts; ++e) TryReplace(s, e, full, best);
    }
    if (best.a < 0) return false;
    best.expert < 0 ? Exchange(best.a, best.b) : Replace(best.a, best.expert);
    rank_loads_ = RankLoads(shape_, slots_, loads_);
    return true;
  }

  void TryExchange(int32_t s, int32_t t, int32_t full, Step& best) const {
    const int32_t mine = ExpertOf(s), other = ExpertOf(t), rank = shape_.RankOf(t);
    const double less = LoadOf(mine) - LoadOf(other);
    if (!(less > 0) || Holds(full, other) || Holds(rank, mine)) return;
    const double before = rank_loads_[At(full)];
    const double gain =
        (before - std::max(before - less, rank_loads_[At(rank)] + less)) / exchange_moves_;
    if (gain > best.gain) best = {.a = s, .b = t, .gain = gain};
  }

  // `slot` holds `expert` instead of what it holds now, which has other replicas.
  void TryReplace(int32_t slot, int32_t expert, int32_t full, Step& best) const {
    const int32_t old = ExpertOf(slot), rank = shape_.RankOf(slot);
    if (old == expert || Holds(rank, expert)) return;
    const auto& more = holders_[At(expert)];
    const auto& fewer = holders_[At(old)];
    const double now = Load(expert, more.size() + 1), rest = Load(old, fewer.size() - 1);
    const double shed = LoadOf(expert) - now, added = rest - LoadOf(old);
    // Loads afterwards of the ranks that get more.
    const auto after = [&](int32_t r) {
      double load = rank_loads_[At(r)];
      load -= shed * static_cast<double>(std::ranges::count(more, r));
      const auto olds = static_cast<double>(std::ranges::count(fewer, r));
      if (r == rank) return load + now - LoadOf(old) + added * (olds - 1);
      return load + added * olds;
    };
    double most = std::max(after(rank), after(full));
    for (const int32_t r : fewer) most = std::max(most, after(r));
    const double gain = rank_loads_[At(full)] - most;
    if (gain > best.gain) best = {.a = slot, .expert = expert, .gain = gain};
  }

  void Exchange(int32_t s, int32_t t) {
    const int32_t mine = ExpertOf(s), other = ExpertOf(t);
    *std::ranges::find(holders_[At(mine)], shape_.RankOf(s)) = shape_.RankOf(t);
    *std::ranges::find(holders_[At(other)], shape_.RankOf(t)) = shape_.RankOf(s);
    std::swap(slots_[At(s)], slots_[At(t)]);
  }

  void Replace(int32_t slot, int32_t expert) {
    std::vector<int32_t>& fewer = holders_[At(ExpertOf(slot))];
    fewer.erase(std::ranges::find(fewer, shape_.RankOf(slot)));
    holders_[At(expert)].push_back(shape_.RankOf(slot));
    slots_[At(slot)] = expert;
  }

  const ExpertShape shape_;
  const int32_t per_rank_;
  LayerSlots slots_;
  const std::span<const double> loads_;
  std::vector<std::vector<int32_t>> holders_;  // of each expert, a rank per replica
  std::vector<double> rank_loads_;
  double exchange_moves_ = 1;
};

// A placement from nothing: replicas on different ranks as long as there are no more than ranks,
// heaviest first, each onto the lightest rank with room that does not hold the expert.
LayerSlots PlaceApart(const ExpertShape& shape, std::span<const double> loads) {
  const int64_t most = int64_t{shape.experts} * shape.ranks;
  const Replication replicated = shape.slots() <= most
                                     ? Replicate(loads, shape.slots(), shape.ranks)
                                     : Replicate(loads, shape.slots());
  const auto weight = [&](int32_t i) {
    const auto e = static_cast<size_t>(replicated.expert[static_cast<size_t>(i)]);
    return loads[e] / replicated.count[e];
  };
  std::vector<int32_t> order(replicated.expert.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return weight(a) > weight(b); });
  std::vector<std::vector<int32_t>> held(static_cast<size_t>(shape.ranks));
  std::vector<double> load(held.size());
  const auto holds = [&](size_t rank, int32_t expert) {
    return std::ranges::find(held[rank], expert) != held[rank].end();
  };
  const auto full = [&](size_t rank) {
    return held[rank].size() == static_cast<size_t>(shape.slots_per_rank());
  };
  for (const int32_t item : order) {
    const int32_t expert = replicated.expert[static_cast<size_t>(item)];
    size_t best = held.size(), room = held.size();
    for (size_t r = 0; r < held.size(); ++r) {
      if (full(r)) continue;
      if (room == held.size() || load[r] < load[room]) room = r;
      if (!holds(r, expert) && (best == held.size() || load[r] < load[best])) best = r;
    }
    if (best == held.size()) {
      // Every rank with room holds the expert. A full rank that does not gives one of its experts
      // to a rank with room; it has one that the other lacks, for it holds more.
      best = room;
      for (size_t r = 0; r < held.size() && best == room; ++r) {
        if (!full(r) || holds(r, expert)) continue;
        const auto moved =
            std::ranges::find_if(held[r], [&](int32_t e) { return !holds(room, e); });
        if (moved == held[r].end()) continue;
        const auto e = static_cast<size_t>(*moved);
        held[room].push_back(*moved);
        load[room] += loads[e] / replicated.count[e];
        load[r] -= loads[e] / replicated.count[e];
        held[r].erase(moved);
        best = r;
      }
    }
    held[best].push_back(expert);
    load[best] += weight(item);
  }
  LayerSlots out;
  for (const auto& experts : held) out.insert(out.end(), experts.begin(), experts.end());
  return out;
}

}  // namespace

LayerSlots PlaceIncremental(const ExpertShape& shape, std::span<const int32_t> current,
                            std::span<const double> loads, double wanted) {
  CHECK(loads.size() == static_cast<size_t>(shape.experts));
  CHECK(current.size() == static_cast<size_t>(shape.slots()));
  const LayerSlots old(current.begin(), current.end());
  const auto balance = [&](const LayerSlots& slots) {
    return Balancedness(RankLoads(shape, slots, loads));
  };
  if (balance(old) >= wanted) return old;
  const LayerSlots anew = Rearrangement(shape, PlaceApart(shape, loads), loads).Improve(wanted, 1);
  const double goal = std::min(wanted, kNearEnough * balance(anew));
  LayerSlots best = old;
  for (const LayerSlots& next :
       {Rearrangement(shape, old, loads).Improve(goal, 2),
        Rearrangement(shape, old, loads).Improve(goal, 1), Align(shape, current, anew, false)}) {
    const double now = balance(best), then = balance(next);
    const bool fewer = Received(shape, old, next) < Received(shape, old, best);
    if (now < goal ? then > now : then >= goal && fewer) best = next;
  }
  return best;
}

}  // namespace braid
