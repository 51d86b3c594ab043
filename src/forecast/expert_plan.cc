// Placements judged by windows that they have not seen.
#include "forecast/expert_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "experts/placement.h"
#include "forecast/formulas.h"

namespace braid {
namespace {

using Placed = std::vector<LayerSlots>;  // by layer of the file
using Loads = std::vector<std::vector<double>>;

Loads SumOf(std::span<const LoadWindow> windows) {
  LoadWindow sum;
  for (const LoadWindow& window : windows) sum += window;
  Loads loads;
  for (const auto& counts : sum.counts) loads.emplace_back(counts.begin(), counts.end());
  return loads;
}

Placed Place(PlacementMethod method, const ExpertShape& shape, const ExpertPlanOptions& options,
             const Placed& current, const Loads& loads) {
  Placed placed;
  for (size_t layer = 0; layer < loads.size(); ++layer) {
    const LayerSlots& old = current[layer];
    switch (method) {
      case PlacementMethod::kInOrder:
        placed.push_back(old);
        break;
      case PlacementMethod::kHierarchical:
        placed.push_back(
            Align(shape, old, PlaceHierarchical(shape, options.groups, loads[layer]), true));
        break;
      case PlacementMethod::kGlobal:
        placed.push_back(Align(shape, old, PlaceGlobal(shape, loads[layer]), false));
        break;
      case PlacementMethod::kIncremental:
        placed.push_back(PlaceIncremental(shape, old, loads[layer], options.wanted));
        break;
    }
  }
  return placed;
}

class Comparison {
 public:
  Comparison(const ExpertLoads& loads, const ExpertShape& shape, const ExpertPlanOptions& options,
             const ExpertMachine* machine)
      : loads_(loads), shape_(shape), options_(options), machine_(machine) {
    const auto count = static_cast<int64_t>(loads.windows.size());
    const auto known = std::llround(options.known * static_cast<double>(count));
    known_ = static_cast<size_t>(std::clamp<int64_t>(known, 1, count - 1));
  }

  PlacementReport ReportOf(PlacementMethod method) const;

 private:
  std::span<const LoadWindow> windows() const { return loads_.windows; }
  Placed Place(PlacementMethod method, const Placed& current, const Loads& loads) const {
    return braid::Place(method, shape_, options_, current, loads);
  }
  template <class RankLoadsOf>
  double BalanceOf(const Loads& loads, RankLoadsOf of) const;
  double EvenBalance(const Placed& placed, const Loads& loads) const {
    return BalanceOf(loads,
                     [&](size_t layer) { return RankLoads(shape_, placed[layer], loads[layer]); });
  }
  int64_t ReceivedBy(const Placed& current, const Placed& next) const;
  void AddTimes(const Placed& placed, const Loads& loads, PlacementReport& report) const;
  void AddOnline(Placed placed, PlacementReport& report) const;
  std::vector<const MoeFfn*> Mixtures() const;

  const ExpertLoads& loads_;
  const ExpertShape& shape_;
  const ExpertPlanOptions& options_;
  const ExpertMachine* machine_;
  size_t known_ = 1;
};

template <class RankLoadsOf>
double Comparison::BalanceOf(const Loads& loads, RankLoadsOf of) const {
  double sum = 0, fullest = 0;
  for (size_t layer = 0; layer < loads.size(); ++layer) {
    const std::vector<double> rank_loads = of(layer);
    sum += std::accumulate(rank_loads.begin(), rank_loads.end(), 0.0);
    fullest += std::ranges::max(rank_loads);
  }
  // Ranks that are even may add up to a rounding more than their number times the fullest.
  return fullest > 0 ? std::min(1.0, sum / (fullest * shape_.ranks)) : 1;
}

int64_t Comparison::ReceivedBy(const Placed& current, const Placed& next) const {
  int64_t received = 0;
  for (size_t i = 0; i < next.size(); ++i) received += Received(shape_, current[i], next[i]);
  return received;
}

std::vector<const MoeFfn*> Comparison::Mixtures() const {
  std::vector<const MoeFfn*> mixtures;
  for (const int32_t layer : loads_.layers) {
    mixtures.push_back(std::get_if<MoeFfn>(&machine_->spec.layers[static_cast<size_t>(layer)].ffn));
  }
  return mixtures;
}

void Comparison::AddTimes(const Placed& placed, const Loads& loads, PlacementReport& report) const {
  if (machine_ == nullptr) return;
  double seconds = 0, bytes = 0;
  const std::vector<const MoeFfn*> mixtures = Mixtures();
  for (size_t i = 0; i < placed.size(); ++i) {
    const MoeFfn& moe = *mixtures[i];
    seconds += FullestSeconds(shape_, placed[i], {moe, loads[i]}, options_.step_tokens, *machine_);
    const double weight =
        ops::PackedMatrix{.format = machine_->format, .n = 1, .k = machine_->spec.hidden}
            .bytes_per_weight();
    bytes += ExpertCost(moe, machine_->spec.hidden, 0,
                        static_cast<double>(Received(shape_, InOrder(shape_), placed[i])), weight)
                 .bytes;
  }
  report.expert_seconds = seconds;
  report.received_bytes = bytes;
}

void Comparison::AddOnline(Placed placed, PlacementReport& report) const {
  const Placed once = placed;
  double balance = 0, moved = 0;
  const size_t held_out = windows().size() - known_;
  for (size_t at = known_; at < windows().size(); ++at) {
    const Loads window = SumOf(windows().subspan(at, 1));
    report.windows_online.push_back(EvenBalance(placed, window));
    report.windows_once.push_back(EvenBalance(once, window));
    balance += report.windows_online.back();
    if (at + 1 == windows().size()) break;
    // As many windows as were known at first.
    const Loads recent = SumOf(windows().subspan(at + 1 - known_, known_));
    Placed next = Place(report.method, placed, recent);
    moved += static_cast<double>(ReceivedBy(placed, next));
    placed = std::move(next);
  }
  report.balance_online = balance / static_cast<double>(held_out);
  if (held_out > 1) report.received_online = moved / static_cast<double>(held_out - 1);
}

PlacementReport Comparison::ReportOf(PlacementMethod method) const {
  const Loads known = SumOf(windows().first(known_)), held = SumOf(windows().subspan(known_));
  const Placed in_order(known.size(), InOrder(shape_));
  const Placed placed = Place(method, in_order, known);
  PlacementReport report{.method = method,
                         .balance_known = EvenBalance(placed, known),
                         .balance_held_out = EvenBalance(placed, held),
                         .balance_chosen = BalanceOf(
                             held,
                             [&](size_t layer) {
                               const auto choices = ReplicaChoices(
                                   shape_, placed[layer],
                                   options_.seed + static_cast<uint64_t>(loads_.layers[layer]));
                               return ChosenLoads(shape_, choices, held[layer]);
                             }),
                         .received = ReceivedBy(in_order, placed)};
  for (size_t layer = 0; layer < held.size(); ++layer) {
    std::vector<double> of_ranks = RankLoads(shape_, placed[layer], held[layer]);
    const double mean = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) / shape_.ranks;
    for (double& load : of_ranks) load = mean > 0 ? load / mean : 1;
    report.rank_loads.push_back(std::move(of_ranks));
  }
  AddOnline(placed, report);
  AddTimes(placed, held, report);
  return report;
}

// The hierarchical one needs groups and nodes that divide.
bool Allows(PlacementMethod method, const ExpertShape& shape, const ExpertPlanOptions& options) {
  return method != PlacementMethod::kHierarchical ||
         (options.groups > 0 && shape.experts % options.groups == 0 &&
          options.groups % shape.nodes() == 0 && shape.slots() % shape.nodes() == 0);
}

Status CheckExperts(const ExpertLoads& loads, const ExpertShape& shape) {
  if (shape.experts == loads.experts) return {};
  return Error{ErrorCode::kInvalid, fmt::format("the loads are of {} experts, the mesh has {}",
                                                loads.experts, shape.experts)};
}

Status CheckModel(const ExpertLoads& loads, const ModelSpec& spec) {
  std::vector<int32_t> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (moe == nullptr) continue;
    layers.push_back(static_cast<int32_t>(i));
    if (moe->experts != loads.experts || moe->top_k != loads.top_k) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("the loads are of {} experts, {} a token; layer {} of the model has "
                               "{}, {} a token",
                               loads.experts, loads.top_k, i, moe->experts, moe->top_k)};
    }
  }
  if (layers == loads.layers) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("the loads are of layers {}; the model has experts in layers {}",
                           fmt::join(loads.layers, ", "), fmt::join(layers, ", "))};
}

// top_k choices of each token by Zipf's law; no token chooses an expert twice.
std::vector<int64_t> ZipfCounts(std::span<const size_t> order, int64_t tokens, int32_t top_k,
                                double exponent) {
  std::vector<double> parts;
  for (size_t place = 0; place < order.size(); ++place) {
    parts.push_back(std::pow(1.0 + static_cast<double>(place), -exponent));
  }
  double part_rest = std::accumulate(parts.begin(), parts.end(), 0.0);
  std::vector<int64_t> counts(order.size());
  int64_t rest = tokens * top_k;
  for (size_t place = 0; place < order.size(); ++place) {
    const auto after = static_cast<int64_t>(order.size() - place - 1);
    const auto share =
        std::llround(static_cast<double>(rest) * parts[place] / std::max(part_rest, parts[place]));
    counts[order[place]] =
        std::clamp<int64_t>(share, rest - std::min(rest, after * tokens), tokens);
    rest -= counts[order[place]];
    part_rest -= parts[place];
  }
  return counts;
}

}  // namespace

std::string_view NameOf(PlacementMethod method) {
  constexpr std::string_view kNames[] = {"in order", "hierarchical", "global", "incremental"};
  return kNames[static_cast<int>(method)];
}

Result<ExpertLoads> DrawLoads(const ModelSpec& spec, const DrawnLoads& drawn) {
  ExpertLoads loads{.model = spec.architecture};
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (moe == nullptr) continue;
    loads.layers.push_back(static_cast<int32_t>(i));
    loads.experts = moe->experts;
    loads.top_k = moe->top_k;
  }
  if (loads.layers.empty()) {
    return Error{ErrorCode::kInvalid, fmt::format("{} has no experts", spec.architecture)};
  }
  constexpr int64_t kDrawnPasses = 100;  // as engines record
  const auto experts = static_cast<size_t>(loads.experts);
  Rng rng(drawn.seed);
  std::vector<std::vector<size_t>> orders;  // of each layer, the expert of each place
  for (size_t layer = 0; layer < loads.layers.size(); ++layer) {
    std::vector<size_t>& order = orders.emplace_back(experts);
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t e = experts; e > 1; --e) std::swap(order[e - 1], order[rng.Below(e)]);
  }
  for (int32_t w = 0; w < drawn.windows; ++w) {
    LoadWindow window{.passes = kDrawnPasses, .tokens = drawn.tokens};
    for (std::vector<size_t>& order : orders) {
      // Two neighbours change places, so that what is hot changes slowly.
      if (experts > 1) {
        const auto at = rng.Below(experts - 1);
        std::swap(order[at], order[at + 1]);
      }
      window.counts.push_back(ZipfCounts(order, drawn.tokens, loads.top_k, drawn.exponent));
    }
    loads.windows.push_back(std::move(window));
  }
  return loads;
}

Result<ExpertLoads> LoadsOf(const std::string& source, const ModelSpec& spec, uint64_t seed) {
  constexpr std::string_view kDrawn = "zipf=";
  if (!source.starts_with(kDrawn)) return ReadExpertLoads(source);
  DrawnLoads drawn{.seed = seed};
  const char* end = source.data() + source.size();
  const auto [rest, error] = std::from_chars(source.data() + kDrawn.size(), end, drawn.exponent);
  if (error != std::errc() || rest != end || !(drawn.exponent >= 0 && drawn.exponent <= 10)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: the exponent must be a number from 0 to 10", source)};
  }
  return DrawLoads(spec, drawn);
}

double FullestSeconds(const ExpertShape& shape, const LayerSlots& slots, const LayerLoad& load,
                      int64_t tokens, const ExpertMachine& machine) {
  const auto& [moe, loads] = load;
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (!(sum > 0) || tokens == 0) return 0;
  const double weight =
      ops::PackedMatrix{.format = machine.format, .n = 1, .k = machine.spec.hidden}
          .bytes_per_weight();
  const Replicas replicas(shape, slots);
  const auto n = static_cast<double>(tokens);
  std::vector<double> rows(static_cast<size_t>(shape.ranks)), touched(rows.size());
  for (int32_t slot = 0; slot < shape.slots(); ++slot) {
    const int32_t e = slots[static_cast<size_t>(slot)];
    // A token's chance to reach the slot.
    const double chance = std::min(1.0, moe.top_k * loads[static_cast<size_t>(e)] / sum) /
                          static_cast<double>(replicas.Of(e).size());
    const auto rank = static_cast<size_t>(shape.RankOf(slot));
    rows[rank] += n * chance;
    touched[rank] += 1 - std::pow(1 - chance, n);
  }
  double seconds = 0;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const Cost cost = ExpertCost(moe, machine.spec.hidden, rows[rank], touched[rank], weight);
    seconds = std::max(seconds, LimitSeconds(cost.flops, machine.hardware.FlopsFor(machine.format),
                                             cost.bytes, machine.hardware.memory_bytes_per_second));
  }
  return seconds;
}

Result<std::vector<PlacementReport>> ComparePlacements(const ExpertLoads& loads,
                                                       const ExpertShape& shape,
                                                       const ExpertPlanOptions& options,
                                                       const ExpertMachine* machine) {
  RETURN_IF_ERROR(CheckShape(shape));
  RETURN_IF_ERROR(CheckExperts(loads, shape));
  if (loads.windows.size() < 2) {
    return Error{ErrorCode::kInvalid,
                 "the loads are one window; placements are judged by windows that they have not "
                 "seen, so at least 2 are needed"};
  }
  if (machine != nullptr) RETURN_IF_ERROR(CheckModel(loads, machine->spec));
  const Comparison comparison(loads, shape, options, machine);
  std::vector<PlacementReport> reports;
  using enum PlacementMethod;
  for (const PlacementMethod method : {kInOrder, kHierarchical, kGlobal, kIncremental}) {
    if (Allows(method, shape, options)) reports.push_back(comparison.ReportOf(method));
  }
  return reports;
}

Result<std::vector<LayerSlots>> PlaceBy(PlacementMethod method, const ExpertLoads& loads,
                                        const ExpertShape& shape,
                                        const ExpertPlanOptions& options) {
  RETURN_IF_ERROR(CheckShape(shape));
  RETURN_IF_ERROR(CheckExperts(loads, shape));
  if (!Allows(method, shape, options)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} groups of experts do not divide among {} nodes; take another "
                             "placement than hierarchical",
                             options.groups, shape.nodes())};
  }
  const Loads sum = SumOf(loads.windows);
  return Place(method, shape, options, Placed(sum.size(), InOrder(shape)), sum);
}

}  // namespace braid
