// `braid bench balance`: what a placement of experts is worth where some are chosen more often than
// others. Every rank's experts compute the rows that come to them, one rank after the other with
// all threads, once where experts lie in order and once where they are placed, turn by turn; the
// fullest rank is the time of a step. Beside it stands what the cost formula predicts.
#include "experts/balance.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench/machine_limits.h"
#include "cli/bench/ops.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "experts/placement.h"
#include "experts/recorder.h"
#include "forecast/expert_plan.h"
#include "ops/experts.h"

namespace braid {
namespace {

constexpr int32_t kExperts = 64, kTopK = 8, kWidth = 512, kHidden = 2048;

// Choices of each token: Zipf's law without repetition, by the largest of disturbed logarithms.
std::vector<int32_t> DrawChoices(int64_t tokens, double skew) {
  Rng rng(1);
  std::vector<int32_t> order(kExperts);
  for (int32_t e = 0; e < kExperts; ++e) order[static_cast<size_t>(e)] = e;
  for (size_t e = order.size(); e > 1; --e) std::swap(order[e - 1], order[rng.Below(e)]);
  std::vector<int32_t> ids;
  std::vector<std::pair<double, int32_t>> keys(kExperts);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int32_t place = 0; place < kExperts; ++place) {
      const double draw = (static_cast<double>(rng.Below(1 << 30)) + 0.5) / (1 << 30);
      keys[static_cast<size_t>(place)] = {-skew * std::log(1.0 + place) - std::log(-std::log(draw)),
                                          order[static_cast<size_t>(place)]};
    }
    std::ranges::partial_sort(keys, keys.begin() + kTopK, std::greater());
    std::vector<int32_t> chosen;
    for (int32_t j = 0; j < kTopK; ++j) chosen.push_back(keys[static_cast<size_t>(j)].second);
    std::ranges::sort(chosen);
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

// A step's rows under one placement.
struct Placed {
  std::string_view name;
  LayerSlots slots;
  std::vector<std::vector<int32_t>> rows;  // of each rank: the slot of each row that comes
  std::vector<std::vector<double>> ns;     // of each rank, by repeat
  double fullest_ns = 0, predicted_seconds = 0, balance = 0;
};

// What it costs an engine to record the choices of a layer in a step, lines of a file included.
Result<double> RecordingNs(const std::vector<int32_t>& ids, int64_t rows) {
  ExpertRecorder recorder({.experts = kExperts, .top_k = kTopK, .layers = {0}});
  RETURN_IF_ERROR(recorder.Open("/dev/null"));
  double least = 0;
  for (int32_t turn = 0; turn < 5; ++turn) {
    constexpr int32_t kPasses = 100;  // a line of the file
    const int64_t start_ns = MonotonicNs();
    for (int32_t pass = 0; pass < kPasses; ++pass) {
      recorder.Count(0, ids);
      recorder.EndPass(rows);
    }
    const double ns = static_cast<double>(MonotonicNs() - start_ns) / kPasses;
    least = turn == 0 ? ns : std::min(least, ns);
  }
  RETURN_IF_ERROR(recorder.Close());
  return least;
}

class BenchBalanceCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Number("--ranks", shape_.ranks, {2, kExperts}, "Ranks that divide 64 experts");
    flags.Number("--redundant", shape_.redundant, {0, kRedundantExpertsMax}, "Further replicas");
    flags.Number("--skew", skew_, {0, 10}, "Exponent of Zipf's law by which experts are chosen");
    flags.Number("--rows", rows_, {1, 1 << 16}, "Tokens of a step, of all ranks");
    flags.Number("--repeat", repeat_, {1, 1000},
                 "Number of measurements; the least of each rank counts");
    flags.Switch("--json", json_, "Print a JSON object");
    AddDeviceFlags(flags, options_);
  }
  Status Run() override;

 private:
  Placed PlacedBy(std::string_view name, LayerSlots slots, const std::vector<int32_t>& ids) const;
  void Measure(const Machine& machine, ThreadPool& pool, std::span<Placed> all) const;
  void Predict(const Machine& machine, ThreadPool& pool, const std::vector<double>& counts,
               std::span<Placed> all) const;
  void Print(std::span<const Placed> all, double recording_ns) const;

  EngineOptions options_;
  ExpertShape shape_{.experts = kExperts, .ranks = 4};
  double skew_ = 1.2;
  int32_t rows_ = 2048;
  int32_t repeat_ = 9;
  bool json_ = false;
};

Placed BenchBalanceCommand::PlacedBy(std::string_view name, LayerSlots slots,
                                     const std::vector<int32_t>& ids) const {
  Placed placed{.name = name, .slots = std::move(slots)};
  placed.rows.resize(static_cast<size_t>(shape_.ranks));
  placed.ns.resize(placed.rows.size());
  const std::vector<int32_t> choices = ReplicaChoices(shape_, placed.slots, 42);
  for (int64_t t = 0; t < rows_; ++t) {
    const int64_t home = t * shape_.ranks / rows_;  // the rank whose token it is
    for (int64_t j = 0; j < kTopK; ++j) {
      const int32_t expert = ids[static_cast<size_t>(t * kTopK + j)];
      const int32_t slot = choices[static_cast<size_t>(home * kExperts + expert)];
      placed.rows[static_cast<size_t>(shape_.RankOf(slot))].push_back(slot %
                                                                      shape_.slots_per_rank());
    }
  }
  size_t fullest = 0, all = 0;
  for (const auto& rows : placed.rows) {
    fullest = std::max(fullest, rows.size());
    all += rows.size();
  }
  placed.balance = static_cast<double>(all) / static_cast<double>(fullest * placed.rows.size());
  return placed;
}

void BenchBalanceCommand::Measure(const Machine& machine, ThreadPool& pool,
                                  std::span<Placed> all) const {
  const int64_t slots = shape_.slots_per_rank();
  const BenchWeights gate_up(ops::WeightFormat::kBF16, 2 * slots, kWidth, kHidden);
  const BenchWeights down(ops::WeightFormat::kBF16, slots, kHidden, kWidth);
  const int64_t most = int64_t{rows_} * kTopK;
  const BenchMatrix x(most, kHidden), out(most, kHidden);
  const std::vector<float> ones(static_cast<size_t>(most), 1.0f);
  const auto compute = [&](const ops::OpContext& context, const std::vector<int32_t>& rows) {
    ops::Experts(context, {.x = x.view.first_rows(std::ssize(rows)),
                           .gate_up = &gate_up.all,
                           .down = &down.all,
                           .ids = rows.data(),
                           .weights = ones.data(),
                           .top_k = 1,
                           .out = out.view.first_rows(std::ssize(rows))});
  };
  const std::vector<int32_t> worst(static_cast<size_t>(most));
  Workspace measuring = Workspace::Measuring();
  ops::OpContext context{machine.device, &pool, &measuring, nullptr};
  compute(context, worst);
  Workspace workspace(measuring.peak());
  context.workspace = &workspace;
  for (int32_t i = 0; i <= repeat_; ++i) {
    for (Placed& placed : all) {
      for (size_t rank = 0; rank < placed.rows.size(); ++rank) {
        const int64_t start_ns = MonotonicNs();
        if (!placed.rows[rank].empty()) compute(context, placed.rows[rank]);
        const auto ns = static_cast<double>(MonotonicNs() - start_ns);
        if (i > 0) placed.ns[rank].push_back(ns);  // the first turn warms up
      }
    }
  }
  for (Placed& placed : all) {
    // Other work can only slow a repetition down.
    for (const auto& ns : placed.ns) {
      placed.fullest_ns = std::max(placed.fullest_ns, std::ranges::min(ns));
    }
  }
}

void BenchBalanceCommand::Predict(const Machine& machine, ThreadPool& pool,
                                  const std::vector<double>& counts, std::span<Placed> all) const {
  const Unit unit = UnitFor(machine.device, ops::WeightFormat::kBF16);
  Hardware hardware;
  hardware.bf16_flops = MeasureUnit(unit, pool);
  hardware.memory_bytes_per_second = MemoryMeter(machine.device.isa, pool).Read(0.3);
  MoeFfn moe;
  moe.experts = kExperts;
  moe.top_k = kTopK;
  moe.width = kWidth;
  ModelSpec spec;
  spec.hidden = kHidden;
  const ExpertMachine on{spec, hardware};
  for (Placed& placed : all) {
    placed.predicted_seconds = FullestSeconds(shape_, placed.slots, {moe, counts}, rows_, on);
  }
}

void BenchBalanceCommand::Print(std::span<const Placed> all, double recording_ns) const {
  const Placed &order = all[0], &placed = all[1];
  const double predicted = order.predicted_seconds / placed.predicted_seconds;
  const double measured = order.fullest_ns / placed.fullest_ns;
  if (json_) {
    json::object out{{"ranks", shape_.ranks},
                     {"redundant_experts", shape_.redundant},
                     {"skew", skew_},
                     {"rows", rows_},
                     {"predicted_gain", predicted},
                     {"measured_gain", measured},
                     {"gain_by_rows", placed.balance / order.balance},
                     {"recording_ns", recording_ns},
                     {"recording_part", recording_ns / placed.fullest_ns}};
    for (const Placed& p : all) {
      out[p.name] = {{"balance", p.balance},
                     {"fullest_ns", p.fullest_ns},
                     {"predicted_ns", p.predicted_seconds * 1e9}};
    }
    fmt::print("{}\n", json::serialize(out));
    return;
  }
  fmt::print("{} tokens of {} experts, {} a token, Zipf {}, on {} ranks, {} redundant\n\n", rows_,
             kExperts, kTopK, skew_, shape_.ranks, shape_.redundant);
  fmt::print("{:<10}{:>10}{:>16}{:>16}\n", "", "balance", "fullest rank", "at the limits");
  for (const Placed& p : all) {
    fmt::print("{:<10}{:>10.3f}{:>13.3f} ms{:>13.3f} ms\n", p.name, p.balance, p.fullest_ns * 1e-6,
               p.predicted_seconds * 1e3);
  }
  fmt::print("\ngain: measured {:.2f}, predicted {:.2f} at the limits, {:.2f} by rows\n", measured,
             predicted, placed.balance / order.balance);
  fmt::print("recording what tokens choose: {:.2f} us, {:.3f} % of the fullest rank as placed\n",
             recording_ns * 1e-3, 100 * recording_ns / placed.fullest_ns);
}

Status BenchBalanceCommand::Run() {
  shape_.ranks_per_node = shape_.ranks;
  RETURN_IF_ERROR(CheckShape(shape_));
  ASSIGN_OR_RETURN(const Machine machine, ResolveMachine(options_));
  ThreadPool pool(machine.threads, machine.places);
  const std::vector<int32_t> ids = DrawChoices(rows_, skew_);
  std::vector<double> counts(kExperts);
  for (const int32_t e : ids) ++counts[static_cast<size_t>(e)];
  Placed all[] = {PlacedBy("in order", InOrder(shape_), ids),
                  PlacedBy("placed", PlaceGlobal(shape_, counts), ids)};
  Measure(machine, pool, all);
  Predict(machine, pool, counts, all);
  ASSIGN_OR_RETURN(const double recording_ns, RecordingNs(ids, rows_));
  Print(all, recording_ns);
  return {};
}

}  // namespace

CommandPointer MakeBenchBalanceCommand() { return std::make_unique<BenchBalanceCommand>(); }

}  // namespace braid
