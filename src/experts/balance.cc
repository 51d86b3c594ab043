// See the header.
#include "experts/balance.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "experts/placement.h"

namespace braid {
namespace {

double Fullest(const ExpertShape& shape, const LayerSlots& slots, std::span<const double> loads) {
  return std::ranges::max(RankLoads(shape, slots, loads));
}

// Of the rank that receives most.
int64_t MostReceived(const ExpertShape& shape, const LayerSlots& current, const LayerSlots& next) {
  const auto size = static_cast<size_t>(shape.slots_per_rank());
  int64_t most = 0;
  for (size_t rank = 0; rank < static_cast<size_t>(shape.ranks); ++rank) {
    const auto before = std::span(current).subspan(rank * size, size);
    const auto after = std::span(next).subspan(rank * size, size);
    std::vector<int32_t> received;
    for (const int32_t expert : after) {
      if (std::ranges::find(before, expert) == before.end()) received.push_back(expert);
    }
    std::ranges::sort(received);
    received.erase(std::unique(received.begin(), received.end()), received.end());
    most = std::max(most, std::ssize(received));
  }
  return most;
}

}  // namespace

BalanceDecision Decide(const ExpertShape& shape, std::span<const LayerSlots> current,
                       std::span<const int64_t> counts, const BalanceRules& rules) {
  const auto experts = static_cast<size_t>(shape.experts);
  CHECK(counts.size() == current.size() * experts);
  BalanceDecision decision;
  double sum = 0, fullest = 0, fullest_next = 0;
  for (size_t layer = 0; layer < current.size(); ++layer) {
    const auto chosen = counts.subspan(layer * experts, experts);
    const std::vector<double> loads(chosen.begin(), chosen.end());
    const LayerSlots& old = current[layer];
    LayerSlots next = PlaceIncremental(shape, old, loads, rules.wanted);
    const double before = Fullest(shape, old, loads), after = Fullest(shape, next, loads);
    const double cost =
        rules.rows_per_move * static_cast<double>(MostReceived(shape, old, next));
    const bool pays = before - after >= rules.gain_min * before && before - after > cost;
    if (!pays) next = old;
    sum += std::accumulate(loads.begin(), loads.end(), 0.0);
    fullest += before;
    fullest_next += pays ? after : before;
    decision.received += Received(shape, old, next);
    decision.moves |= next != old;
    decision.next.push_back(std::move(next));
  }
  if (fullest > 0) decision.balance = sum / (fullest * shape.ranks);
  if (fullest_next > 0) decision.balance_next = sum / (fullest_next * shape.ranks);
  return decision;
}

}  // namespace braid
