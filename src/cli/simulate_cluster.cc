// `braid simulate cluster`: engines that serve a load in simulated time, from a config alone.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/json.h"
#include "base/quantities.h"
#include "base/system/file.h"
#include "cli/cluster_page.h"
#include "cli/command/command_factories.h"
#include "cli/command/pairs.h"
#include "cluster/cluster.h"
#include "cluster/trace.h"
#include "forecast/expert_plan.h"
#include "model/families/families.h"

namespace braid {
namespace {

class SimulateClusterCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", model_, "Directory with a config.json, or the file; weights unused");
    flags.Text("--hardware", hardware_, "As for braid plan");
    flags.Text("--calibration", calibration_, "As for braid plan");
    flags.Number("--machine-engines", cluster_.machine_engines, {1, 1 << 10},
                 "Engines of one machine, which share its memory's bandwidth");
    flags.Text("--calibration-shared", shared_calibration_,
               "With --machine-engines: --calibration measured while all of them compute");
    flags.Number("--engines", cluster_.engines, {1, 1 << 16}, "Engines behind the router");
    flags.Number("--prefill-engines", cluster_.prefill_engines, {0, 1 << 16},
                 "Of the engines, those that compute prompts for the others; 0: each does all");
    flags.Text("--mesh", mesh_text_, "dp=N,tp=N,ep=N: devices of an engine");
    flags.Choice("--route", route_, {"least-loaded", "round-robin", "prefix"},
                 "Which engine a request goes to");
    flags.Choice("--load", load_, {"random", "sharegpt", "agentic"},
                 "What requests are like (default: random)");
    flags.Text("--trace-file", trace_,
               "Requests of a recorded run (--event-log) instead, or of a trace: Mooncake's JSON "
               "lines or Azure's CSV");
    flags.Text("--rate", rates_,
               "Requests (agentic: conversations) per second (default: 1); several with ,");
    flags.Number("--minutes", minutes_, {0.01, 1e5}, "During which requests come");
    flags.Number("--input-tokens", draw_.input_tokens, {1, 1 << 24}, "With random: of a prompt");
    flags.Number("--output-tokens", draw_.output_tokens, {1, 1 << 24}, "With random: of an answer");
    flags.Number("--range-ratio", draw_.range_ratio, {0, 1},
                 "With random: shortest length as a part of the longest");
    flags.Choice("--weights", weights_, {"bf16", "fp8", "int8", "int4", "fp32"},
                 "Format of the weights");
    flags.Number("--expert-balance", expert_balance_, {0.001, 1},
                 "Mean load of the ranks that share experts over that of the fullest");
    flags.Text("--expert-loads", loads_,
               "Replay what tokens chose in a recorded run (--expert-loads of the engine), window "
               "by window, instead of --expert-balance; or zipf=S: drawn by Zipf's law of "
               "exponent S");
    flags.Choice("--experts-placed", placed_, {"none", "once", "online"},
                 "With --expert-loads: experts in order, placed by the first half of the windows, "
                 "or placed again after each window (default); the second half is replayed");
    flags.Number("--redundant-experts", redundant_, {0, kRedundantExpertsMax},
                 "Further copies of experts per layer; ep divides experts and copies");
    flags.Number("--max-num-seqs", cluster_.running_max, {1, 1 << 16}, "Sequences of a dp group");
    flags.Number("--max-batch-tokens", cluster_.step_tokens_max, {64, 1 << 20},
                 "Most tokens of a step of a dp group");
    flags.Number("--decode-latency-ms", cluster_.decode_latency_us, 1000, {0, 1000},
                 "As for serve: so long steps may take that read prompts beside answers; 0: any");
    flags.Number("--fail-every", cluster_.fail_every_seconds, {0, 1e9},
                 "Mean seconds between failures of an engine; 0: none");
    flags.Number("--repair", cluster_.repair_seconds, {0, 1e9},
                 "Seconds until a failed engine is back");
    flags.Number("--scale-requests", cluster_.scale_requests, {0, 1e6},
                 "Start and stop engines so that each has so many requests; 0: all run");
    flags.Number("--min-engines", cluster_.engines_min, {1, 1 << 16},
                 "With --scale-requests: engines that always run");
    flags.Number("--start-seconds", cluster_.start_seconds, {0, 1e6},
                 "With --scale-requests: until a started engine serves");
    flags.Switch("--no-overlap", no_overlap_, "Communication after computation");
    flags.Seed("--seed", seed_, "Seed of the load and of failures (default: 1)");
    flags.Text("--html", html_, "Write a page with plots to FILE");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override;

 private:
  Status ReadFlags();
  Status ReplayLoads(const ModelSpec& spec, const Hardware& machine);
  Result<std::vector<ClusterRun>> Simulate(const ModelSpec& spec, const Hardware& machine);
  void Print(const std::vector<ClusterRun>& runs, const std::string& title) const;

  std::string model_, hardware_, calibration_, shared_calibration_, mesh_text_;
  std::string route_ = "least-loaded", load_;
  std::string trace_, rates_, weights_ = "bf16", html_, loads_, placed_;
  int32_t redundant_ = 0;
  double minutes_ = 10, expert_balance_ = 1;
  bool no_overlap_ = false, json_ = false;
  std::optional<uint64_t> seed_;
  ClusterOptions cluster_;
  ClusterLoadOptions draw_;
  std::vector<double> rate_list_;
};

Status SimulateClusterCommand::ReadFlags() {
  int64_t dp = 1, tp = 1, ep = 1;
  RETURN_IF_ERROR(ReadPairs("--mesh", mesh_text_, {{"dp", &dp}, {"tp", &tp}, {"ep", &ep}}));
  cluster_.mesh = {.dp = static_cast<int32_t>(dp),
                   .tp = static_cast<int32_t>(tp),
                   .ep = static_cast<int32_t>(ep)};
  if (loads_.empty() && !placed_.empty()) {
    return Error{ErrorCode::kInvalid, "--experts-placed goes with --expert-loads FILE",
                 "--experts-placed"};
  }
  cluster_.route = route_ == "prefix"        ? Policy::kPrefix
                   : route_ == "round-robin" ? Policy::kRoundRobin
                                             : Policy::kLeastLoad;
  if (cluster_.prefill_engines >= cluster_.engines) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--prefill-engines {}: must be fewer than --engines {}, for some have "
                             "to decode",
                             cluster_.prefill_engines, cluster_.engines),
                 "--prefill-engines"};
  }
  if (cluster_.scale_requests > 0 &&
      (cluster_.prefill_engines > 0 || cluster_.engines_min > cluster_.engines)) {
    return Error{ErrorCode::kInvalid,
                 "--scale-requests works without --prefill-engines, and with --min-engines of at "
                 "most --engines",
                 "--scale-requests"};
  }
  if ((cluster_.machine_engines > 1) != !shared_calibration_.empty()) {
    return Error{ErrorCode::kInvalid,
                 "--machine-engines above 1 and --calibration-shared FILE go together",
                 "--machine-engines"};
  }
  if (!trace_.empty() && (!load_.empty() || !rates_.empty())) {
    return Error{ErrorCode::kInvalid,
                 "--trace-file says which requests come and when; leave out --load and --rate",
                 "--trace-file"};
  }
  if (load_.empty()) load_ = "random";
  if (rates_.empty()) rates_ = "1";
  cluster_.overlap = !no_overlap_;
  draw_.load = load_ == "agentic"    ? ClusterLoad::kAgentic
               : load_ == "sharegpt" ? ClusterLoad::kShareGpt
                                     : ClusterLoad::kRandom;
  draw_.seconds = minutes_ * 60;
  cluster_.seed = draw_.seed = seed_.value_or(1);
  for (std::string_view rest = rates_; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    double rate = 0;
    const auto [end, code] = std::from_chars(part.begin(), part.end(), rate);
    if (code != std::errc() || end != part.end() || !(rate > 0) || rate > 1e6) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("--rate: \"{}\" is wrong; write numbers above 0, as in 1,2,4", part),
                   "--rate"};
    }
    rate_list_.push_back(rate);
  }
  if (rate_list_.empty()) return Error{ErrorCode::kInvalid, "--rate names no rate", "--rate"};
  return {};
}

// The balance of each window that placements have not seen.
Status SimulateClusterCommand::ReplayLoads(const ModelSpec& spec, const Hardware& machine) {
  if (loads_.empty()) return {};
  if (cluster_.mesh.ep == 1) {
    return Error{ErrorCode::kInvalid,
                 "--expert-loads is about ranks that share experts; give a --mesh with ep",
                 "--expert-loads"};
  }
  ASSIGN_OR_RETURN(const ExpertLoads loads, LoadsOf(loads_, spec, cluster_.seed));
  const int32_t ep = cluster_.mesh.ep;
  const auto linked = static_cast<int32_t>(machine.link_devices);
  const ExpertShape shape{.experts = loads.experts,
                          .redundant = redundant_,
                          .ranks = ep,
                          .ranks_per_node = linked > 0 && ep % linked == 0 ? linked : ep};
  const ExpertMachine on{spec, machine};
  const ExpertPlanOptions options{.step_tokens = cluster_.step_tokens_max};
  ASSIGN_OR_RETURN(const std::vector<PlacementReport> reports,
                   ComparePlacements(loads, shape, options, &on));
  const PlacementMethod method =
      placed_ == "none" ? PlacementMethod::kInOrder : PlacementMethod::kIncremental;
  const auto report = std::ranges::find(reports, method, &PlacementReport::method);
  CHECK(report != reports.end());
  const std::vector<double>& balances =
      placed_ == "once" ? report->windows_once : report->windows_online;
  const size_t known = loads.windows.size() - balances.size();
  for (size_t i = 0; i < balances.size(); ++i) {
    cluster_.balances.push_back({loads.windows[known + i].passes, balances[i]});
  }
  return {};
}

// Requests per second from the first to the last one of a trace, at least of a second.
double RateOf(const std::vector<ClusterRequest>& requests) {
  int64_t last_us = 1'000'000;
  for (const ClusterRequest& request : requests) last_us = std::max(last_us, request.at_us);
  return static_cast<double>(requests.size()) / (static_cast<double>(last_us) * 1e-6);
}

Result<std::vector<ClusterRun>> SimulateClusterCommand::Simulate(const ModelSpec& spec,
                                                                 const Hardware& machine) {
  const ForecastOptions forecast{
      .format = ops::FindWeightFormat(weights_).value_or(ops::WeightFormat::kBF16),
      .kv_dtype = machine.kv_dtype,
      .step_tokens_max = cluster_.step_tokens_max,
      .redundant_experts = redundant_,
      .expert_balance = expert_balance_};
  std::vector<ClusterRequest> requests;
  if (!trace_.empty()) {
    ASSIGN_OR_RETURN(ClusterTrace trace, ReadTrace(trace_, draw_.seconds));
    if (trace.cut) {
      fmt::print(stderr,
                 "{} ends before its run does: a crash cut it off, or the server still runs. What "
                 "it has of the run is replayed\n",
                 trace_);
    }
    requests = std::move(trace.requests);
    rate_list_ = {RateOf(requests)};
  }
  std::vector<ClusterRun> runs;
  for (const double rate : rate_list_) {
    draw_.requests_per_second = rate;
    if (trace_.empty()) requests = MakeRequests(draw_);
    if (requests.empty()) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("no request comes at {} a second within {} minutes; raise --rate or "
                               "--minutes",
                               rate, minutes_)};
    }
    ASSIGN_OR_RETURN(ClusterReport report,
                     SimulateCluster(spec, machine, forecast, cluster_, requests));
    runs.push_back({rate, std::move(report)});
  }
  return runs;
}

json::object AsObject(const TimeHistogram& times) {
  return {{"mean", times.mean()},
          {"p50", times.Quantile(0.5)},
          {"p90", times.Quantile(0.9)},
          {"p99", times.Quantile(0.99)}};
}

json::object AsObject(const ClusterRun& run) {
  const ClusterReport& r = run.report;
  return {{"requests_per_second", run.rate},
          {"requests", r.requests},
          {"finished", r.finished},
          {"refused", r.refused},
          {"restarted", r.restarted},
          {"failures", r.failures},
          {"seconds", r.seconds},
          {"busy", r.busy},
          {"expert_balance", r.expert_balance},
          {"engine_seconds", r.engine_seconds},
          {"starts", r.starts},
          {"prefill_busy", r.prefill_busy},
          {"transfers", r.transfer.count()},
          {"transfers_failed", r.transfers_failed},
          {"transferred_bytes", r.transferred_bytes},
          {"transfer_seconds", AsObject(r.transfer)},
          {"steps", r.steps},
          {"preemptions", r.preemptions},
          {"input_tokens", r.input_tokens},
          {"reused_tokens", r.reused_tokens},
          {"output_tokens", r.output_tokens},
          {"output_tokens_per_second", static_cast<double>(r.output_tokens) / r.seconds},
          {"first_token_seconds", AsObject(r.first_token)},
          {"inter_token_seconds", AsObject(r.inter_token)},
          {"request_seconds", AsObject(r.whole)}};
}

void SimulateClusterCommand::Print(const std::vector<ClusterRun>& runs,
                                   const std::string& title) const {
  fmt::print("{}\n\n{:>11}{:>10}{:>14}{:>9}{:>12}{:>11}{:>12}{:>11}{:>7}\n", title, "requests/s",
             "finished", "out tokens/s", "reused", "first, p50", "p99", "token, p50", "p99",
             "busy");
  for (const ClusterRun& run : runs) {
    const ClusterReport& r = run.report;
    const double reused = r.input_tokens > 0 ? static_cast<double>(r.reused_tokens) /
                                                   static_cast<double>(r.input_tokens)
                                             : 0;
    fmt::print(
        "{:>11.3g}{:>10}{:>14.0f}{:>7.1f} %{:>12}{:>11}{:>12}{:>11}{:>5.0f} %\n", run.rate,
        r.finished, static_cast<double>(r.output_tokens) / r.seconds, reused * 100,
        TimeText(r.first_token.Quantile(0.5)), TimeText(r.first_token.Quantile(0.99)),
        TimeText(r.inter_token.Quantile(0.5)), TimeText(r.inter_token.Quantile(0.99)),
        r.busy * 100);
    if (!loads_.empty()) {
      fmt::print("            balance of the ranks that share experts: {:.3f}\n", r.expert_balance);
    }
    if (r.starts > 0) {
      fmt::print("            engines ran for {:.1f} hours in all, {} of them started\n",
                 r.engine_seconds / 3600, r.starts);
    }
    if (r.failures > 0) {
      fmt::print("            {} failures of engines, {} requests started again\n", r.failures,
                 r.restarted);
    }
    if (r.transfer.count() > 0) {
      fmt::print(
          "            prefill engines busy {:.0f} %; pages of {} prompts moved, {:.3g} GB, "
          "p50 {}, p99 {}; {} failed\n",
          r.prefill_busy * 100, r.transfer.count(), r.transferred_bytes * 1e-9,
          TimeText(r.transfer.Quantile(0.5)), TimeText(r.transfer.Quantile(0.99)),
          r.transfers_failed);
    }
    if (r.refused > 0) fmt::print("            {} requests refused\n", r.refused);
  }
}

Status SimulateClusterCommand::Run() {
  RETURN_IF_ERROR(ReadFlags());
  ASSIGN_OR_RETURN(const Hardware machine, ReadCalibrated(hardware_, calibration_));
  if (!shared_calibration_.empty()) {
    ASSIGN_OR_RETURN(cluster_.shared, ReadCalibrated(hardware_, shared_calibration_));
  }
  ASSIGN_OR_RETURN(const ModelSpec spec, ReadModelConfig(model_));
  RETURN_IF_ERROR(ReplayLoads(spec, machine));
  ASSIGN_OR_RETURN(const std::vector<ClusterRun> runs, Simulate(spec, machine));
  const std::string title = fmt::format(
      "{}: {} engines{} of {} x {} ({}), weights {}, {:g} minutes of {}{}, {}", model_,
      cluster_.engines,
      cluster_.prefill_engines > 0 ? fmt::format(" ({} for prompts)", cluster_.prefill_engines)
                                   : "",
      cluster_.mesh.ranks(), machine.name, MeshText(cluster_.mesh), weights_,
      minutes_, trace_.empty() ? load_ : trace_, trace_.empty() ? "" : " at most", route_);
  if (!html_.empty()) RETURN_IF_ERROR(WriteFile(html_, ClusterPage(title, runs)));
  if (!json_) {
    Print(runs, title);
    return {};
  }
  json::array array;
  for (const ClusterRun& run : runs) array.push_back(AsObject(run));
  fmt::print("{}\n", json::serialize(json::object{{"runs", std::move(array)}}));
  return {};
}

}  // namespace

CommandPointer MakeSimulateClusterCommand() { return std::make_unique<SimulateClusterCommand>(); }

}  // namespace braid
