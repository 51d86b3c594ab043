// `braid bench rebalance`: what moving experts to where the load is saves in an engine of several
// ranks, and what it costs while the engine runs. The engine's own balancer decides the placement;
// afterwards experts go back and forth between their order and that placement while steps go on.
// A step's time is what its slowest ranks compute (comm/step_times.h).
#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/math.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cli/bench/rebalance_steps.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "engine/engine.h"
#include "engine/engine_ranks.h"
#include "engine/output_queue.h"
#include "experts/balance.h"

namespace braid {
namespace {

// Keeps so many random requests running. In each rank they end in eight groups, one after another,
// so the mean context of a step stays the same; else later steps would take longer.
class Load {
 public:
  struct Shape {
    int32_t sequences = 0, input_tokens = 0, output_tokens = 0;
    uint64_t seed = 0;
  };
  Load(Engine& engine, const Shape& shape) : engine_(engine), shape_(shape) {}

  Status Begin() {
    for (int32_t i = 0; i < shape_.sequences; ++i) RETURN_IF_ERROR(Submit());
    return {};
  }

  // Waits for an output, a tenth of a second at most.
  Status Turn() {
    const std::optional<TimedOutput> timed = queue_.NextWithin(100);
    if (!timed || !timed->output.finish) return {};
    if (*timed->output.finish == FinishReason::kError) {
      return Error{ErrorCode::kInternal, timed->output.error};
    }
    running_.erase(timed->output.id);
    return Submit();
  }

  void End() {
    for (const auto& [id, any] : running_) engine_.driver().Abort(id);
    engine_.Stop(true);
    engine_.Join();
  }

 private:
  Status Submit() {
    Rng rng(MixBits(shape_.seed + static_cast<uint64_t>(submitted_)));
    Request request;
    request.id = engine_.driver().NewRequestId();
    for (int32_t i = 0; i < shape_.input_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(rng.Below(engine_.spec().vocabulary)));
    }
    request.sampling = {.temperature = 1, .seed = rng.Next()};
    request.stop.new_tokens_max = OutputTokens();
    request.dp_rank = static_cast<int32_t>(submitted_++ % engine_.limits().dp_ranks);
    running_[request.id] = true;
    return engine_.driver().Submit(std::move(request), &queue_);
  }

  // Those of the first requests end early.
  int32_t OutputTokens() const {
    if (submitted_ >= shape_.sequences) return shape_.output_tokens;
    const int32_t ranks = engine_.limits().dp_ranks;
    const int32_t groups = std::clamp(shape_.sequences / ranks, 1, 8);
    const auto group = static_cast<int32_t>(submitted_ / ranks % groups);
    return std::max(1, shape_.output_tokens * (group + 1) / groups);
  }

  Engine& engine_;
  const Shape shape_;
  OutputQueue queue_;
  std::map<RequestId, bool> running_;
  int64_t submitted_ = 0;
};

class BenchRebalanceCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    options_.mesh = {.dp = 4, .tp = 1, .ep = 4};
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Switch("--prompts", prompts_, "Measure steps of prompts instead of decode");
    flags.Number("--sequences", sequences_, {1, 1 << 16}, "Sequences of a step, of all ranks");
    flags.Number("--input-tokens", input_tokens_, {1, 1 << 20}, "Prompt tokens per sequence");
    flags.Number("--output-tokens", output_tokens_, {2, 1 << 20},
                 "Generated tokens per sequence, without --prompts");
    flags.Number("--steps", steps_, {10, 1 << 20}, "Steps in each place of the experts");
    flags.Number("--rounds", rounds_, {1, 1000}, "How often the experts are placed");
    flags.Switch("--by-rows", by_rows_,
                 "Let the balancer judge placements by rows alone, not by time, for comparison");
    flags.Seed("--seed", seed_, "Seed of the random prompts (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  enum class Lie : uint8_t { kInOrder, kPlaced, kMoving };

  Status Prepare();
  Status Measure();
  Status TakeSteps();
  Status Watch();
  // Prompts follow each other closely only if some wait.
  int32_t in_flight() const { return sequences_ * (prompts_ ? 3 : 1); }
  bool enough() const { return placed_rounds_ == rounds_ || declined_; }
  double CostRatio() const;
  void Print() const;
  json::object Object(const RebalanceFigures& figures) const;

  EngineOptions options_;
  bool prompts_ = false, by_rows_ = false, json_ = false;
  int32_t sequences_ = 64, input_tokens_ = 32, output_tokens_ = 256;
  int32_t steps_ = 100, rounds_ = 3;
  std::optional<uint64_t> seed_;

  std::deque<StepTimes> times_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::deque<RankStep>> waiting_;  // of each rank
  std::vector<RebalanceStep> samples_;
  // Where experts lie.
  ExpertShape shape_;
  std::vector<LayerSlots> in_order_, placed_;
  std::map<int64_t, Lie> lie_after_;  // by the number of moves that have ended
  int64_t ended_ = 0;
  int32_t in_phase_ = 0;       // steps since the last move ended
  int32_t placed_rounds_ = 0;  // complete ones
  bool asked_ = false;         // for a move that has not ended
  bool declined_ = false;      // the balancer moves nothing
};

// Steps of other numbers of tokens (prompts between steps of decode, and ends) do not count.
Status BenchRebalanceCommand::TakeSteps() {
  size_t ready = SIZE_MAX;
  for (size_t r = 0; r < times_.size(); ++r) {
    std::ranges::move(times_[r].Take(), std::back_inserter(waiting_[r]));
    ready = std::min(ready, waiting_[r].size());
  }
  const int64_t tokens = int64_t{sequences_} * (prompts_ ? input_tokens_ : 1);
  const bool parcels = options_.ep_dispatch == "latency";
  std::vector<RankStep> ranks(times_.size());
  for (; ready > 0; --ready) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r] = std::move(waiting_[r].front());
      waiting_[r].pop_front();
    }
    ASSIGN_OR_RETURN(const GroupStep group, SlowestOf(ranks));
    const auto lie = lie_after_.find(group.moves_before);
    if (group.tokens != tokens || (lie == lie_after_.end() && !group.moving)) continue;
    RebalanceStep step = StepOf(group, kExpertsGroup, parcels ? 2 : 3);
    if (!group.moving) {
      step.placed = lie->second == Lie::kPlaced;
      ++in_phase_;
    }
    samples_.push_back(step);
  }
  return {};
}

// The balancer places the experts the first time; then they go back and forth.
Status BenchRebalanceCommand::Watch() {
  const MoveProgress progress = engine_->mover()->progress();
  if (progress.dropped > 0) return Error{ErrorCode::kInternal, progress.failure};
  if (progress.moving || (asked_ && progress.done == ended_)) return {};
  if (progress.done > ended_) {
    const std::vector<LayerSlots> now = engine_->mover()->placement();
    if (now != in_order_) placed_ = now;
    ended_ = progress.done;
    lie_after_[ended_] = now == in_order_ ? Lie::kInOrder : Lie::kPlaced;
    in_phase_ = 0;
    asked_ = false;
    return {};
  }
  const bool in_order = lie_after_.at(ended_) == Lie::kInOrder;
  if (in_order && placed_.empty()) {
    declined_ = in_phase_ > 3 * steps_;
    return {};
  }
  if (in_phase_ < steps_) return {};
  if (!in_order && ++placed_rounds_ == rounds_) return {};
  asked_ = true;
  engine_->driver().Post(MoveExperts{in_order ? placed_ : in_order_});
  return {};
}

Status BenchRebalanceCommand::Prepare() {
  const int32_t ranks = options_.mesh.ranks();
  if (ranks == 1 || options_.mesh.ep == 1 || FollowsAsRank()) {
    return Error{ErrorCode::kInvalid,
                 "bench rebalance measures ranks that are threads of one process and share "
                 "experts; start it alone, with --ep of at least 2",
                 "ep"};
  }
  if (sequences_ % options_.mesh.dp != 0) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} sequences cannot be divided evenly among {} data-parallel ranks",
                             sequences_, options_.mesh.dp),
                 "sequences"};
  }
  // A thread for each rank: its CPU time is then the rank's.
  options_.threads = ranks;
  options_.balance_experts = true;
  options_.balance.every_steps = static_cast<int32_t>(CeilDiv(steps_, 10) * 10);
  if (by_rows_) options_.balance.rules.rows_per_read = 0;
  options_.draft = "off";
  options_.two_batch_overlap = "off";
  const int32_t of_rank = sequences_ / options_.mesh.dp;
  if (options_.ep_dispatch == "auto") {
    options_.ep_dispatch =
        !prompts_ && of_rank <= kParcelTokensMost * options_.mesh.tp ? "latency" : "throughput";
  }
  options_.scheduler.running_max = of_rank;
  options_.scheduler.waiting_max = std::max(options_.scheduler.waiting_max, in_flight());
  options_.scheduler.prefix_cache = false;
  if (prompts_) {
    output_tokens_ = 1;
    options_.scheduler.step_tokens_max = sequences_ * input_tokens_;
  }
  if (options_.context_tokens_max == 0) {
    options_.context_tokens_max = input_tokens_ + output_tokens_;
  }
  for (int32_t r = 0; r < ranks; ++r) times_.emplace_back();
  waiting_.resize(times_.size());
  options_.step_times = &times_;
  ASSIGN_OR_RETURN(engine_, Engine::Load(options_));
  if (StderrIsTerminal()) fmt::print(stderr, "{}", engine_->PlanText());
  in_order_ = engine_->mover()->placement();
  shape_ = engine_->options().mesh.SlotsOf(engine_->experts()->header().experts);
  shape_.ranks_per_node = shape_.ranks;
  lie_after_[0] = Lie::kInOrder;
  return {};
}

Status BenchRebalanceCommand::Measure() {
  Load load(*engine_, {.sequences = in_flight(),
                       .input_tokens = input_tokens_,
                       .output_tokens = output_tokens_,
                       .seed = seed_.value_or(0)});
  RETURN_IF_ERROR(load.Begin());
  ProgressBar bar("bench", 0);
  Status status;
  while (status && !enough()) {
    bar.Show(static_cast<double>(placed_rounds_) / rounds_);
    status = load.Turn();
    if (status) status = TakeSteps();
    if (status) status = Watch();
  }
  load.End();
  return status;
}

double BenchRebalanceCommand::CostRatio() const {
  const LoadWindow window = engine_->experts()->last();
  double cost[2] = {};
  for (size_t layer = 0; layer < placed_.size(); ++layer) {
    // As the balancer sees a step: the rows of a group's tokens, with the shares of the window.
    const double groups = static_cast<double>(options_.mesh.ranks()) / shape_.ranks;
    const double step = static_cast<double>(sequences_) * (prompts_ ? input_tokens_ : 1) / groups;
    std::vector<double> loads;
    for (const int64_t count : window.counts[layer]) {
      loads.push_back(static_cast<double>(count) * step / static_cast<double>(window.tokens));
    }
    constexpr BalanceWindow::Part kOne[] = {{}};
    const double per_read = BalanceRules().rows_per_read;
    const uint64_t seed =
        kReplicaSeed + static_cast<uint64_t>(engine_->experts()->header().layers[layer]);
    const auto longest = [&](const LayerSlots& slots) {
      const auto choices = ReplicaChoices(shape_, slots, seed);
      return LongestRank(shape_, SlotLoads(shape_, choices, loads), kOne, per_read);
    };
    cost[0] += longest(in_order_[layer]);
    cost[1] += longest(placed_[layer]);
  }
  return cost[0] > 0 ? cost[1] / cost[0] : 1;
}

json::object BenchRebalanceCommand::Object(const RebalanceFigures& f) const {
  const MoveProgress progress = engine_->mover()->progress();
  return {{"ranks", shape_.ranks},
          {"redundant_experts", shape_.redundant},
          {"steps_of", prompts_ ? "prompts" : "decode"},
          {"sequences", sequences_},
          {"by_rows", by_rows_},
          {"placed", !placed_.empty()},
          {"moves", progress.done},
          {"moved_bytes_first_rank", progress.bytes},
          {"steps_in_order", f.in_order},
          {"steps_placed", f.placed},
          {"steps_moving", f.moving},
          {"step_ms_in_order", f.step_ms[0]},
          {"step_ms_placed", f.step_ms[1]},
          {"step_ms_predicted", f.predicted_step_ms},
          {"step_ms_wall", f.wall_ms},
          {"experts_ms_in_order", f.experts_ms[0]},
          {"experts_ms_placed", f.experts_ms[1]},
          {"experts_ms_predicted", f.predicted_experts_ms},
          {"gain", f.gain},
          {"predicted_gain", f.predicted_gain},
          {"placed_over_predicted", f.over_prediction},
          {"longest_moving_over_median", f.longest_moving},
          {"longest_still_over_median", f.longest_still},
          {"longest_moving_over_median_wall", f.longest_moving_wall},
          {"longest_still_over_median_wall", f.longest_still_wall},
          {"engine", engine_->PlanObject()}};
}

void BenchRebalanceCommand::Print() const {
  const RebalanceFigures f = FiguresOf(samples_, placed_.empty() ? 1 : CostRatio());
  if (json_) {
    fmt::print("{}\n", json::serialize(Object(f)));
    return;
  }
  fmt::print("{} ranks, {} redundant experts, steps of {} tokens ({})\n\n", shape_.ranks,
             shape_.redundant, sequences_ * (prompts_ ? input_tokens_ : 1),
             prompts_ ? "prompts" : "decode");
  fmt::print("{:<12}{:>8}{:>14}{:>14}\n", "experts", "steps", "step", "of experts");
  fmt::print("{:<12}{:>8}{:>11.3f} ms{:>11.3f} ms\n", "in order", f.in_order, f.step_ms[0],
             f.experts_ms[0]);
  if (placed_.empty()) {
    fmt::print("\nthe balancer leaves the experts in order\n");
    return;
  }
  fmt::print("{:<12}{:>8}{:>11.3f} ms{:>11.3f} ms\n", "placed", f.placed, f.step_ms[1],
             f.experts_ms[1]);
  fmt::print("{:<12}{:>8}{:>11.3f} ms{:>11.3f} ms\n", "predicted", "", f.predicted_step_ms,
             f.predicted_experts_ms);
  fmt::print(
      "\ngain: measured {:.3f}, predicted {:.3f}; placed steps take {:.3f} of the prediction\n",
      f.gain, f.predicted_gain, f.over_prediction);
  fmt::print(
      "longest of {} steps in which experts move: {:.2f} of the median (others {:.2f}); by "
      "the clock {:.2f} ({:.2f})\n",
      f.moving, f.longest_moving, f.longest_still, f.longest_moving_wall, f.longest_still_wall);
}

Status BenchRebalanceCommand::Run() {
  RETURN_IF_ERROR(Prepare());
  RETURN_IF_ERROR(Measure());
  Print();
  return {};
}

}  // namespace

CommandPointer MakeBenchRebalanceCommand() { return std::make_unique<BenchRebalanceCommand>(); }

}  // namespace braid
