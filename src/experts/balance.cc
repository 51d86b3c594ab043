// See the header.
#include "experts/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "experts/placement.h"

namespace braid {
namespace {

// What a placement of a layer makes of its load.
struct Judged {
  double fullest = 0;  // rows of the fullest rank
  double time = 0;     // LongestRank
};

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

// A rank's time in a step, counted in rows of an expert.
struct RankTime {
  double mean = 0, variance = 0;

  // Of a slot that so many rows choose in the mean. It is read if any row chooses it.
  void Add(double rows, double rows_per_read) {
    const double read = 1 - std::exp(-rows);
    const bool computes = rows >= rows_per_read * read;  // for longer than it reads
    mean += computes ? rows : rows_per_read * read;
    variance += computes ? rows : rows_per_read * rows_per_read * read * (1 - read);
  }
};

// The longest of normal variables is expected to be the upper end of their range less the integral
// of its distribution function, the product of theirs. A range of five deviations leaves out less
// than a millionth.
double ExpectedLongest(std::span<const RankTime> ranks) {
  constexpr double kDeviations = 5;
  constexpr int kIntervals = 64;
  double low = 0, high = 0;
  for (const RankTime& rank : ranks) {
    const double spread = kDeviations * std::sqrt(rank.variance);
    low = std::max(low, rank.mean - spread);
    high = std::max(high, rank.mean + spread);
  }
  const double width = (high - low) / kIntervals;
  double integral = 0;
  for (int i = 0; i < kIntervals && width > 0; ++i) {
    const double time = low + (i + 0.5) * width;
    double below = 1;
    for (const RankTime& rank : ranks) {
      const double away = time - rank.mean;
      below *= rank.variance > 0 ? std::erfc(-away / std::sqrt(2 * rank.variance)) / 2
                                 : (away >= 0 ? 1.0 : 0.0);
    }
    integral += below * width;
  }
  return high - integral;
}

}  // namespace

double LongestRank(const ExpertShape& shape, std::span<const double> loads,
                   std::span<const BalanceWindow::Part> parts, double rows_per_read) {
  CHECK(loads.size() == static_cast<size_t>(shape.slots()));
  double all = 0, longest = 0;
  for (const BalanceWindow::Part& part : parts) all += static_cast<double>(part.rows);
  std::vector<RankTime> ranks(static_cast<size_t>(shape.ranks));
  for (const BalanceWindow::Part& part : parts) {
    if (all == 0 || part.rows == 0) continue;
    const auto steps = static_cast<double>(part.steps);
    const double share = static_cast<double>(part.rows) / all / steps;
    std::ranges::fill(ranks, RankTime());
    for (int32_t slot = 0; slot < shape.slots(); ++slot) {
      ranks[static_cast<size_t>(shape.RankOf(slot))].Add(loads[static_cast<size_t>(slot)] * share,
                                                         rows_per_read);
    }
    longest += ExpectedLongest(ranks) * steps;
  }
  return longest;
}

BalanceDecision Decide(const ExpertShape& shape, std::span<const LayerSlots> current,
                       const BalanceWindow& window, const BalanceRules& rules) {
  const std::span<const int64_t> counts = window.counts;
  constexpr BalanceWindow::Part kOne[] = {{}};
  const auto parts = window.parts.empty() ? std::span(kOne) : window.parts;
  const auto experts = static_cast<size_t>(shape.experts);
  CHECK(counts.size() == current.size() * experts && window.groups > 0);
  CHECK(window.layers.empty() || window.layers.size() == current.size());
  BalanceDecision decision;
  double sum = 0, fullest = 0, fullest_next = 0, time = 0, saved_in_all = 0;
  for (size_t layer = 0; layer < current.size(); ++layer) {
    const auto chosen = counts.subspan(layer * experts, experts);
    std::vector<double> loads(chosen.begin(), chosen.end());
    for (double& load : loads) load /= window.groups;
    const LayerSlots& old = current[layer];
    LayerSlots next = PlaceIncremental(shape, old, loads, rules.wanted);
    const auto number = window.layers.empty() ? layer : static_cast<size_t>(window.layers[layer]);
    const auto judge = [&](const LayerSlots& slots) {
      const auto choices = ReplicaChoices(shape, slots, kReplicaSeed + number);
      return Judged{
          std::ranges::max(ChosenLoads(shape, choices, loads)),
          LongestRank(shape, SlotLoads(shape, choices, loads), parts, rules.rows_per_read)};
    };
    const Judged before = judge(old), after = judge(next);
    const double cost = rules.rows_per_move * static_cast<double>(MostReceived(shape, old, next));
    const double saved = before.time - after.time;
    const bool pays = saved >= rules.gain_min * before.time && saved > cost;
    if (!pays) next = old;
    time += before.time;
    saved_in_all += pays ? saved : 0;
    sum += std::accumulate(loads.begin(), loads.end(), 0.0);
    fullest += before.fullest;
    fullest_next += pays ? after.fullest : before.fullest;
    decision.received += Received(shape, old, next);
    decision.moves |= next != old;
    decision.next.push_back(std::move(next));
  }
  if (saved_in_all < rules.gain_min * time) {
    decision.next.assign(current.begin(), current.end());
    decision.moves = false;
    decision.received = 0;
    fullest_next = fullest;
  }
  if (fullest > 0) decision.balance = sum / (fullest * shape.ranks);
  if (fullest_next > 0) decision.balance_next = sum / (fullest_next * shape.ranks);
  return decision;
}

}  // namespace braid
