// `braid simulate`: the scheduler and the prefix cache against the hash LM, without a model.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/clock.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/command/command_factories.h"
#include "sim/seed_runs.h"
#include "tensor/device.h"

namespace braid {
namespace {

std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

Result<FaultMask> ParseFaults(std::string_view text) {
  if (text == "all") return kAllFaults;
  if (text == "none") return FaultMask{0};
  FaultMask mask = 0;
  for (const std::string_view name : SplitAtCommas(text)) {
    std::string known;
    bool found = false;
    for (uint32_t f = 0; f < static_cast<uint32_t>(Fault::kCount); ++f) {
      const auto fault = static_cast<Fault>(f);
      known += fmt::format("{}{}", f > 0 ? ", " : "", NameOf(fault));
      if (name != NameOf(fault)) continue;
      mask |= MaskOf(fault);
      found = true;
    }
    if (found) continue;
    return Error{
        ErrorCode::kInvalid,
        fmt::format("--faults names \"{}\"; known are all, none, or a list of {}", name, known),
        "--faults"};
  }
  return mask;
}

Result<std::vector<int32_t>> ParseNumbers(std::string_view text) {
  std::vector<int32_t> numbers;
  for (const std::string_view part : SplitAtCommas(text)) {
    int32_t number = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() || number < 0) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("--only has \"{}\"; it takes numbers of requests: 0,3,7", part),
                   "--only"};
    }
    numbers.push_back(number);
  }
  return numbers;
}

class SimulateCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    constexpr double kMany = 2e9;
    std::vector<std::string> kinds;
    for (uint8_t k = 0; k < static_cast<uint8_t>(WorkloadKind::kCount); ++k) {
      kinds.emplace_back(NameOf(static_cast<WorkloadKind>(k)));
    }
    flags.Number("--seeds", seeds_, {0, kMany}, "Number of seeds (default: 1000)");
    flags.Seed("--from", from_, "First seed (default: 1)");
    flags.Seed("--seed", seed_, "Run this seed only");
    flags.Number("--steps", steps_, {0, kMany}, "Run seeds until this many steps have run");
    flags.Number("--minutes", minutes_, {0, 100000},
                 "Run for this long, with one engine per process for all seeds, as in a server");
    flags.Choice("--workload", kind_, std::move(kinds), "Kind of requests");
    flags.Text("--faults", faults_,
               "Faults to inject: all, none, or some of abort,row-error,lost-step,late,tiny,flush,"
               "move,slow,pause,stop,lost-rank");
    flags.Number("--overlap", overlap_, {0, 1}, "Steps planned ahead (default: random)");
    flags.Choice("--policy", policy_, {"drawn", "prefix-affine", "least-loaded", "round-robin"},
                 "Placement of requests on data-parallel ranks");
    flags.Switch("--no-prefix-cache", no_prefix_cache_, "Do not reuse cached prefixes");
    flags.Switch("--no-drafts", no_drafts_, "Put no draft tokens into rows");
    flags.Switch("--no-handoff", no_handoff_, "Hand off no prompts between engines");
    flags.Switch("--no-group", no_group_, "Run no engine as a group of two ranks");
    flags.Text("--only", only_, "Keep only the requests with these numbers: 0,3,7");
    flags.Number("--cut-prompts", cut_prompts_, {0, kMany},
                 "Cut longer prompts to this many tokens");
    flags.Number("--cut-outputs", cut_outputs_, {0, kMany},
                 "Cut longer answers to this many tokens");
    flags.Number("--threads", threads_, {1, 1024},
                 "Number of processes (default: one per hardware thread)");
    flags.Switch("--json", json_, "Print one JSON object");
  }
  Status Run() override;

 private:
  Result<SimulationOptions> Options() const;
  void Print(const SimulationReport& report) const;
  void PrintJson(const SimulationReport& report) const;

  std::optional<int32_t> seeds_, overlap_;
  std::optional<uint64_t> from_, seed_;
  int32_t steps_ = 0, cut_prompts_ = 0, cut_outputs_ = 0, threads_ = 0;
  double minutes_ = 0;
  std::string kind_ = "mixed", faults_ = "all", policy_ = "drawn", only_;
  bool no_prefix_cache_ = false, no_drafts_ = false, no_handoff_ = false, no_group_ = false,
       json_ = false;
};

Result<SimulationOptions> SimulateCommand::Options() const {
  SimulationOptions options;
  WorkloadOptions& w = options.workload;
  while (NameOf(w.kind) != kind_) w.kind = static_cast<WorkloadKind>(static_cast<int>(w.kind) + 1);
  ASSIGN_OR_RETURN(w.faults, ParseFaults(faults_));
  ASSIGN_OR_RETURN(w.only, ParseNumbers(only_));
  w.overlap_depth = overlap_;
  w.prefix_cache = !no_prefix_cache_;
  w.drafts = !no_drafts_;
  w.handoff = !no_handoff_;
  w.group = !no_group_;
  if (policy_ == "prefix-affine") w.placement = Placement::kPrefixAffine;
  if (policy_ == "least-loaded") w.placement = Placement::kLeastLoaded;
  if (policy_ == "round-robin") w.placement = Placement::kRoundRobin;
  w.prompt_tokens_max = cut_prompts_;
  w.output_tokens_max = cut_outputs_;
  options.from = seed_.value_or(from_.value_or(1));
  options.steps = steps_;
  options.minutes = minutes_;
  options.soak = minutes_ > 0;
  const bool open = steps_ > 0 || minutes_ > 0;
  options.seeds = seed_ ? 1 : seeds_.value_or(open ? 0 : 1000);
  options.processes = seed_ ? 1 : threads_ > 0 ? threads_ : DetectCpu().topology.DefaultThreads();
  return options;
}

double Percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void SimulateCommand::Print(const SimulationReport& r) const {
  const SimulationStats& t = r.total;
  fmt::print("{} seeds in {:.1f} s: {} requests, {} steps, {} rows, {} tokens; {:.0f} rows/s\n",
             r.seeds, r.seconds, t.requests, t.steps, t.rows, t.tokens,
             static_cast<double>(t.rows) / r.seconds);
  fmt::print("ends: {} aborted, {} failed, {} refused, {} at a stop token; {} tokens came late\n",
             t.aborted, t.failed, t.refused, t.stopped, t.late_tokens);
  fmt::print("reused {:.1f} % of {} prompt tokens;", Percent(t.reused_tokens, t.prompt_tokens),
             t.prompt_tokens);
  for (size_t i = 0; i < kReuseStops; ++i) {
    fmt::print(" {} {}", NameOf(static_cast<ReuseStop>(i)), t.reuse_stops[i]);
  }
  fmt::print("\nevicted {} blocks and {} states; {} preemptions, {} requests protected\n",
             t.evictions_full, t.evictions_state, t.preemptions, t.protected_requests);
  fmt::print("guessed {} tokens, {:.1f} % of them right; moved {} prompts, {} of them in vain\n",
             t.drafts, Percent(t.drafts_accepted, t.drafts), t.moves, t.moves_failed);
  fmt::print("steps to the first output: half within {}, 99 % within {}, at most {}\n",
             t.WaitQuantile(0.5), t.WaitQuantile(0.99), t.wait_max);
  fmt::print("plans and outputs: {:016x}\n", t.trace);
  fmt::print("resident: {:.1f} MiB after a tenth of the time, {:.1f} MiB at the end\n",
             static_cast<double>(r.resident_early) / (1 << 20),
             static_cast<double>(r.resident_end) / (1 << 20));
}

void SimulateCommand::PrintJson(const SimulationReport& r) const {
  const SimulationStats& t = r.total;
  json::object stops;
  for (size_t i = 0; i < kReuseStops; ++i) {
    stops[NameOf(static_cast<ReuseStop>(i))] = t.reuse_stops[i];
  }
  json::object out{{"seeds", r.seeds},
                   {"seconds", r.seconds},
                   {"requests", t.requests},
                   {"steps", t.steps},
                   {"rows", t.rows},
                   {"tokens", t.tokens},
                   {"aborted", t.aborted},
                   {"failed", t.failed},
                   {"refused", t.refused},
                   {"prompt_tokens", t.prompt_tokens},
                   {"reused_tokens", t.reused_tokens},
                   {"reuse_stops", std::move(stops)},
                   {"evicted_blocks", t.evictions_full},
                   {"evicted_states", t.evictions_state},
                   {"preemptions", t.preemptions},
                   {"drafts", t.drafts},
                   {"drafts_accepted", t.drafts_accepted},
                   {"moves", t.moves},
                   {"moves_failed", t.moves_failed},
                   {"wait_steps_median", t.WaitQuantile(0.5)},
                   {"wait_steps_p99", t.WaitQuantile(0.99)},
                   {"wait_steps_max", t.wait_max},
                   {"trace", fmt::format("{:016x}", t.trace)},
                   {"resident_bytes_early", r.resident_early},
                   {"resident_bytes_end", r.resident_end}};
  if (r.failure) {
    out["failure"] = json::object{{"seed", r.failure->seed},
                                  {"message", r.failure->message},
                                  {"command", r.failure->command}};
  }
  fmt::print("{}\n", json::serialize(out));
}

Status SimulateCommand::Run() {
  ASSIGN_OR_RETURN(const SimulationOptions options, Options());
  ProgressBar bar("simulating", 0.5);
  const int64_t begin_us = MonotonicUs();
  ASSIGN_OR_RETURN(
      const SimulationReport report, RunSimulation(options, [&](int64_t seeds, int64_t steps) {
        const auto part = [](double done, double all) { return all > 0 ? done / all : 0.0; };
        const double fraction =
            std::max({part(static_cast<double>(seeds), static_cast<double>(options.seeds)),
                      part(static_cast<double>(steps), static_cast<double>(options.steps)),
                      part(static_cast<double>(MonotonicUs() - begin_us), options.minutes * 60e6)});
        bar.Show(std::min(fraction, 1.0), fmt::format("{} seeds, {} steps", seeds, steps));
      }));
  json_ ? PrintJson(report) : Print(report);
  if (!report.failure) return {};
  const SimulationFailure& f = *report.failure;
  return Error{ErrorCode::kInternal,
               fmt::format("seed {} fails: {}\nrepeat it with: {}", f.seed, f.message,
                           f.command.empty() ? "the same command" : f.command)};
}

}  // namespace

CommandPointer MakeSimulateCommand() { return std::make_unique<SimulateCommand>(); }

}  // namespace braid
