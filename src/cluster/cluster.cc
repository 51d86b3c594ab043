// A queue of events in time: arrivals, ends of steps, failures and repairs.
#include "cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>

#include "base/check.h"
#include "base/rng.h"
#include "cluster/cluster_state.h"
#include "cluster/step_times.h"
#include "scheduler/limits.h"

namespace braid {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr size_t kMoments = 200;
constexpr int64_t kScaleNs = 10'000'000'000;
constexpr int32_t kRestartsMax = 1000;  // of a request

class Cluster {
 public:
  Cluster(StepTimes times, const SchedulerConfig& config, const Hardware& hardware,
          const ClusterOptions& options, const std::vector<ClusterRequest>& requests)
      : times_(std::move(times)),
        config_(config),
        hardware_(hardware),
        options_(options),
        requests_(requests),
        live_(requests.size()),
        followers_(requests.size(), -1),
        engines_(static_cast<size_t>(options.engines)),
        placer_(options.route),
        rng_(options.seed) {
    const int64_t blocks = SequenceTokensMax(config.cache) / kBlockTokens * config.dp_ranks;
    for (int32_t e = options.prefill_engines; e < options.engines; ++e) {
      placer_.AddEngine(e, std::max<int64_t>(1, blocks));
    }
  }

  Result<ClusterReport> Run();

 private:
  void Add(int64_t at_ns, Happening::Kind kind, int32_t which, int64_t life = 0) {
    queue_.push({at_ns, number_++, kind, which, life});
  }
  Status Start(ClusterEngine& engine);
  void Arrive(int32_t request);
  bool Takes(const ClusterEngine& engine) const { return engine.scheduler && !engine.leaving; }
  // To the engine that answers, and to the one that computes the prompt for it; -1: none is up.
  int32_t Place(int32_t request);
  int32_t PlacePrompt() const;
  void ForgetCache(const ClusterEngine& engine);
  // Its prompt is computed, or will not be.
  void EndBacklog(int32_t request);
  void Submit(int32_t request);
  void SubmitTo(int32_t engine, int32_t number, Request request);
  // Tells an engine something, takes what it answers, and lets it work if it was idle.
  void Apply(int32_t engine, Event event);
  void Begin(int32_t engine);
  void BeginMove(const PageMove& move);
  void EndMove(int32_t request);
  void EndStep(int32_t engine);
  void TakeOutput(int32_t engine, const Output& output);
  void End(int32_t request);
  // What is left of the step in flight is not computed.
  void Cut(ClusterEngine& engine);
  Status Fail(int32_t engine);
  // The engine has failed: of one of its requests. An error if that happened too often.
  Status Lose(int32_t engine, int32_t request);
  RequestId IdOf(int32_t request) const {
    return RequestId(live_[static_cast<size_t>(request)].attempt * count() + request);
  }
  int32_t NumberOf(RequestId id) const { return static_cast<int32_t>(id.value % count()); }
  bool Current(RequestId id) const { return id == IdOf(NumberOf(id)); }
  int64_t count() const { return static_cast<int64_t>(requests_.size()); }
  void ScheduleFailure(int32_t engine);
  void Scale();
  void SwitchOff(ClusterEngine& engine);
  void NextBalance(ClusterEngine& engine);
  double StepSeconds(int32_t which);
  double BusyNeighbours(int32_t which) const;
  ClusterMoment& Now();

  StepTimes times_;
  const SchedulerConfig& config_;
  const Hardware& hardware_;
  const ClusterOptions& options_;
  const std::vector<ClusterRequest>& requests_;
  std::vector<Live> live_;
  std::vector<int32_t> followers_;  // the next turn of each request
  std::vector<ClusterEngine> engines_;
  Placer placer_;
  std::vector<int32_t> homeless_;  // requests that came while no engine was up
  Rng rng_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;
  int64_t number_ = 0, now_ns_ = 0, open_ = 0;
  double balance_sum_ = 0;
  int64_t balanced_steps_ = 0;
  ClusterReport report_;
};

Status Cluster::Start(ClusterEngine& engine) {
  ASSIGN_OR_RETURN(Scheduler scheduler, Scheduler::Create(config_));
  engine.scheduler.emplace(std::move(scheduler));
  return {};
}

ClusterMoment& Cluster::Now() {
  const double at = static_cast<double>(now_ns_) * kNanosecond / report_.moment_seconds;
  const auto index = static_cast<size_t>(at);
  if (index >= report_.moments.size()) {
    ClusterMoment moment;
    for (const ClusterEngine& engine : engines_) {
      if (!engine.scheduler) continue;
      const SchedulerStats stats = engine.scheduler->stats();
      moment.running += stats.running;
      moment.waiting += stats.waiting;
    }
    report_.moments.resize(index + 1, moment);
  }
  return report_.moments[index];
}

Result<ClusterReport> Cluster::Run() {
  int64_t last_us = 1'000'000;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const ClusterRequest& request = requests_[i];
    if (request.follows >= 0) {
      followers_[static_cast<size_t>(request.follows)] = static_cast<int32_t>(i);
    } else {
      Add(request.at_us * 1000, Happening::kArrival, static_cast<int32_t>(i));
      last_us = std::max(last_us, request.at_us);
    }
  }
  report_.moment_seconds = static_cast<double>(last_us) * 1e-6 / kMoments;
  report_.requests = open_ = static_cast<int64_t>(requests_.size());
  const bool scales = options_.scale_requests > 0;
  for (int32_t e = 0; e < options_.engines; ++e) {
    ClusterEngine& engine = engines_[static_cast<size_t>(e)];
    engine.off = scales && e >= options_.engines_min;
    if (engine.off) continue;
    RETURN_IF_ERROR(Start(engine));
    ScheduleFailure(e);
  }
  if (scales) Add(kScaleNs, Happening::kScale, 0);
  while (open_ > 0) {
    CHECK(!queue_.empty(), "{} requests never end", open_);
    const Happening next = queue_.top();
    queue_.pop();
    now_ns_ = next.at_ns;
    RETURN_IF_ERROR(CheckTime(now_ns_, report_.moment_seconds, open_));
    Now();  // moments without an event began with what is there before this one
    const auto which = static_cast<size_t>(next.which);
    switch (next.kind) {
      case Happening::kArrival:
        Arrive(next.which);
        break;
      case Happening::kStepEnd:
        if (next.life == engines_[which].life) EndStep(next.which);
        break;
      case Happening::kTransferEnd:
        if (next.life == live_[which].attempt) EndMove(next.which);
        break;
      case Happening::kFailure:
        if (next.life == engines_[which].life) RETURN_IF_ERROR(Fail(next.which));
        break;
      case Happening::kScale:
        Scale();
        Add(now_ns_ + kScaleNs, Happening::kScale, 0);
        break;
      case Happening::kRepair:
        RETURN_IF_ERROR(Start(engines_[which]));
        ScheduleFailure(next.which);
        for (const int32_t request : std::exchange(homeless_, {})) Submit(request);
        break;
    }
  }
  report_.seconds = static_cast<double>(now_ns_) * kNanosecond;
  const auto prefill = static_cast<size_t>(options_.prefill_engines);
  for (size_t e = 0; e < engines_.size(); ++e) {
    ClusterEngine& engine = engines_[e];
    if (!engine.off) SwitchOff(engine);
    const double busy = static_cast<double>(engine.busy_ns) * kNanosecond;
    report_.engine_seconds += static_cast<double>(engine.paid_ns) * kNanosecond;
    report_.busy += busy;
    if (e < prefill) report_.prefill_busy += busy / report_.seconds / static_cast<double>(prefill);
  }
  report_.busy /= report_.engine_seconds;
  if (balanced_steps_ > 0) {
    report_.expert_balance = balance_sum_ / static_cast<double>(balanced_steps_);
  }
  return std::move(report_);
}

void Cluster::ScheduleFailure(int32_t engine) {
  if (options_.fail_every_seconds <= 0) return;
  const double wait = -std::log(1 - rng_.Uniform()) * options_.fail_every_seconds;
  if (wait > kClusterSecondsMax) return;  // after the end
  Add(now_ns_ + static_cast<int64_t>(wait * 1e9), Happening::kFailure, engine,
      engines_[static_cast<size_t>(engine)].life);
}

// The router hears that the engine begins anew.
void Cluster::ForgetCache(const ClusterEngine& engine) {
  const auto which = static_cast<int32_t>(&engine - engines_.data());
  if (which >= options_.prefill_engines) placer_.Forget(which);
}

void Cluster::SwitchOff(ClusterEngine& engine) {
  Cut(engine);
  ForgetCache(engine);
  engine.off = true;
  engine.leaving = false;
  ++engine.life;
  engine.scheduler.reset();
  engine.paid_ns += now_ns_ - engine.on_ns;
}

// Those that leave and have answered everything stop. Then the first engines stay or start, until
// there are as many as the requests want; of the others, those that run leave.
void Cluster::Scale() {
  double requests = static_cast<double>(homeless_.size());
  for (ClusterEngine& engine : engines_) {
    requests += static_cast<double>(engine.requests.size());
    if (engine.leaving && engine.scheduler && engine.requests.empty() && !engine.running) {
      SwitchOff(engine);
    }
  }
  const double wanted = std::clamp<double>(std::ceil(requests / options_.scale_requests),
                                           options_.engines_min, options_.engines);
  for (int32_t e = 0; e < options_.engines; ++e) {
    ClusterEngine& engine = engines_[static_cast<size_t>(e)];
    if (e >= static_cast<int32_t>(wanted)) {
      engine.leaving = !engine.off;
      continue;
    }
    engine.leaving = false;
    if (!engine.off) continue;
    engine.off = false;
    engine.on_ns = now_ns_;
    ++report_.starts;
    Add(now_ns_ + static_cast<int64_t>(options_.start_seconds * 1e9), Happening::kRepair, e);
  }
}

void Cluster::Cut(ClusterEngine& engine) {
  if (engine.running) engine.busy_ns -= engine.ends_ns - now_ns_;
  engine.running = false;
}

Status Cluster::Fail(int32_t which) {
  ClusterEngine& engine = engines_[static_cast<size_t>(which)];
  ++report_.failures;
  ++engine.life;
  engine.scheduler.reset();
  Cut(engine);
  ForgetCache(engine);
  Add(now_ns_ + static_cast<int64_t>(options_.repair_seconds * 1e9), Happening::kRepair, which);
  for (const int32_t request : std::exchange(engine.requests, {})) {
    RETURN_IF_ERROR(Lose(which, request));
  }
  return {};
}

Status Cluster::Lose(int32_t engine, int32_t request) {
  Live& live = live_[static_cast<size_t>(request)];
  if (live.prefill == engine) {
    live.prefill = -1;
    live.prefill_lost = true;
    if (live.receives) Add(now_ns_, Happening::kTransferEnd, request, live.attempt);
    return {};
  }
  EndBacklog(request);
  if (live.prefill >= 0) {
    const int32_t sender = std::exchange(live.prefill, -1);
    std::erase(engines_[static_cast<size_t>(sender)].requests, request);
    const RequestId id = IdOf(request);
    ++live.attempt;  // nobody listens to what is left of this one
    Apply(sender, Abort{id});
    if (live.sends) Apply(sender, PagesMoved{.move = *live.sends, .error = "its engine failed"});
  }
  if (++live.restarts > kRestartsMax) {
    const ClusterRequest& planned = requests_[static_cast<size_t>(request)];
    return Error{ErrorCode::kInvalid,
                 fmt::format("a request of {} + {} tokens has started {} times and never ended: "
                             "--fail-every is {:g} s, which must be longer than it takes",
                             planned.prompt_tokens(), planned.answer_tokens(), live.restarts,
                             options_.fail_every_seconds)};
  }
  ++report_.restarted;
  Submit(request);
  return {};
}

void Cluster::Arrive(int32_t request) {
  live_[static_cast<size_t>(request)].arrived_ns = now_ns_;
  Submit(request);
}

int32_t Cluster::Place(int32_t number) {
  PromptKeys keys{.generates = true};
  const ClusterRequest& request = requests_[static_cast<size_t>(number)];
  if (options_.route == Policy::kPrefix) {
    SetTokens(PromptTokens(request, config_.vocabulary), {}, &keys);
  } else {
    keys.tokens = request.prompt_tokens();
  }
  std::vector<EngineLoad> loads;
  for (int32_t e = options_.prefill_engines; e < options_.engines; ++e) {
    const ClusterEngine& engine = engines_[static_cast<size_t>(e)];
    if (!Takes(engine)) continue;
    loads.push_back(
        {.engine = e, .requests = std::ssize(engine.requests), .backlog_tokens = engine.backlog});
  }
  const Placer::Choice choice = placer_.Choose(keys, loads);
  if (choice.engine < 0) return -1;
  placer_.Sent(keys, choice);
  live_[static_cast<size_t>(number)].backlog = choice.computed_tokens;
  engines_[static_cast<size_t>(choice.engine)].backlog += choice.computed_tokens;
  return choice.engine;
}

int32_t Cluster::PlacePrompt() const {
  int32_t best = -1;
  for (int32_t e = 0; e < options_.prefill_engines; ++e) {
    const ClusterEngine& engine = engines_[static_cast<size_t>(e)];
    if (!Takes(engine)) continue;
    const auto has = [&](int32_t which) {
      return engines_[static_cast<size_t>(which)].requests.size();
    };
    if (best < 0 || has(e) < has(best)) best = e;
  }
  return best;
}

void Cluster::EndBacklog(int32_t number) {
  Live& live = live_[static_cast<size_t>(number)];
  engines_[static_cast<size_t>(live.engine)].backlog -= std::exchange(live.backlog, 0);
}

void Cluster::Submit(int32_t number) {
  Live& live = live_[static_cast<size_t>(number)];
  ++live.attempt;
  live.engine = Place(number);
  live.prefill = -1;
  live.prefill_lost = false;
  live.sends = live.receives = std::nullopt;
  live.output = 0;
  if (live.engine < 0) {
    homeless_.push_back(number);
    return;
  }
  Request request = RequestOf(requests_[static_cast<size_t>(number)], config_.vocabulary);
  request.id = IdOf(number);
  live.prefill = MayReceive(config_, request) ? PlacePrompt() : -1;
  const int64_t attempt = live.attempt;
  request.role = live.prefill < 0 ? RequestRole::kBoth : RequestRole::kDecode;
  SubmitTo(live.engine, number, request);
  // Unless it was refused.
  if (live.prefill >= 0 && live.attempt == attempt) {
    request.role = RequestRole::kPrefill;
    SubmitTo(live.prefill, number, std::move(request));
  }
}

void Cluster::SubmitTo(int32_t engine, int32_t number, Request request) {
  engines_[static_cast<size_t>(engine)].requests.push_back(number);
  Apply(engine, braid::Submit{std::move(request)});
}

void Cluster::Apply(int32_t which, Event event) {
  ClusterEngine& engine = engines_[static_cast<size_t>(which)];
  engine.scheduler->Apply(std::move(event));
  for (const Output& output : engine.scheduler->TakeOutputs()) TakeOutput(which, output);
  if (!engine.running) Begin(which);
}

void Cluster::Begin(int32_t which) {
  ClusterEngine& engine = engines_[static_cast<size_t>(which)];
  engine.plan = engine.scheduler->NextPlan();
  engine.running = !engine.plan.empty();
  if (!engine.running) return;
  for (const PageMove& move : engine.plan.moves) BeginMove(move);
  ++report_.steps;
  NextBalance(engine);
  const auto ns = std::max<int64_t>(1, std::llround(StepSeconds(which) * 1e9));
  engine.busy_ns += ns;
  engine.step_ns = ns;
  engine.ends_ns = now_ns_ + ns;
  Add(now_ns_ + ns, Happening::kStepEnd, which, engine.life);
}

void Cluster::BeginMove(const PageMove& move) {
  const int32_t number = NumberOf(move.request);
  Live& live = live_[static_cast<size_t>(number)];
  (move.in() ? live.receives : live.sends) = move.id;
  if (move.in()) {
    live.move_bytes = 0;
    for (const PagePart& part : move.parts) live.move_bytes += PartBytes(config_.cache, part.kind);
  }
  if (!live.receives || !(live.sends || live.prefill_lost)) return;
  // The devices of a group send side by side, each its part.
  const double rate = hardware_.network_bytes_per_second > 0 ? hardware_.network_bytes_per_second
                                                             : hardware_.link_bytes_per_second;
  const double seconds =
      live.prefill_lost ? 0
                        : hardware_.exchange_seconds + static_cast<double>(live.move_bytes) / rate;
  Add(now_ns_ + std::llround(seconds * 1e9), Happening::kTransferEnd, number, live.attempt);
  if (live.prefill_lost) return;
  report_.transfer.Add(seconds);
  report_.transferred_bytes += static_cast<double>(live.move_bytes * options_.mesh.tp);
}

void Cluster::EndMove(int32_t number) {
  Live& live = live_[static_cast<size_t>(number)];
  if (!live.receives) return;
  PagesMoved arrived{.move = *std::exchange(live.receives, std::nullopt)};
  if (live.prefill_lost) {
    ++report_.transfers_failed;
    arrived.error = "the engine that computed the prompt has failed";
  } else {
    arrived.token =
        AnswerToken(requests_[static_cast<size_t>(number)], live.output++, config_.vocabulary);
  }
  if (live.prefill >= 0) Apply(live.prefill, PagesMoved{.move = *live.sends});
  Apply(live.engine, std::move(arrived));
}

void Cluster::EndStep(int32_t which) {
  ClusterEngine& engine = engines_[static_cast<size_t>(which)];
  StepDone done{.step = engine.plan.step, .duration_us = engine.step_ns / 1000};
  ClusterMoment& moment = Now();
  for (const Row& row : engine.plan.rows) {
    RowResult& result = done.rows.emplace_back();
    result.request = row.request;
    const auto request = static_cast<size_t>(NumberOf(row.request));
    if (row.sample) {
      Live& live = live_[request];
      const bool answers = Current(row.request) && which == live.engine;
      result.token =
          AnswerToken(requests_[request], answers ? live.output++ : 0, config_.vocabulary);
    }
    if (row.prompt_logprobs) result.prompt_logprobs.resize(static_cast<size_t>(row.token_count));
    if (row.token_count > 1) moment.input_tokens += row.token_count;
  }
  engine.running = false;
  Apply(which, std::move(done));
}

void Cluster::TakeOutput(int32_t which, const Output& output) {
  if (!Current(output.id)) return;
  const int32_t number = NumberOf(output.id);
  Live& live = live_[static_cast<size_t>(number)];
  if (which == live.prefill) {
    if (!output.finish) return;
    std::erase(engines_[static_cast<size_t>(which)].requests, number);
    live.prefill = -1;
    return;
  }
  const auto since = [&](int64_t then) {
    return static_cast<double>(now_ns_ - then) * kNanosecond;
  };
  if (!output.tokens.empty()) {
    if (live.last_ns < 0) {
      report_.first_token.Add(since(live.arrived_ns));
    } else {
      report_.inter_token.Add(since(live.last_ns));
    }
    EndBacklog(number);
    live.last_ns = now_ns_;
    Now().output_tokens += static_cast<double>(output.tokens.size());
  }
  if (!output.finish) return;
  if (*output.finish == FinishReason::kError) {
    ++report_.refused;
  } else {
    ++report_.finished;
    report_.whole.Add(since(live.arrived_ns));
    report_.input_tokens += output.prompt_tokens;
    report_.reused_tokens += output.cached_tokens;
    report_.output_tokens += output.output_tokens;
    report_.preemptions += output.preemptions;
  }
  End(number);
}

void Cluster::End(int32_t request) {
  Live& live = live_[static_cast<size_t>(request)];
  EndBacklog(request);
  std::erase(engines_[static_cast<size_t>(live.engine)].requests, request);
  ++live.attempt;
  --open_;
  // The next turn comes when its tool has run, after a turn that was refused too.
  const int32_t next = followers_[static_cast<size_t>(request)];
  if (next < 0) return;
  Add(now_ns_ + requests_[static_cast<size_t>(next)].at_us * 1000, Happening::kArrival, next);
}

// The engine begins a step: of which window, and how even its ranks are.
void Cluster::NextBalance(ClusterEngine& engine) {
  if (options_.balances.empty()) return;
  if (engine.window_steps == options_.balances[engine.window].steps) {
    engine.window = (engine.window + 1) % options_.balances.size();
    engine.window_steps = 0;
  }
  ++engine.window_steps;
  const double balance = options_.balances[engine.window].balance;
  times_.SetExpertBalance(balance);
  ClusterMoment& moment = Now();
  moment.balance += (balance - moment.balance) / static_cast<double>(++moment.steps);
  balance_sum_ += balance;
  ++balanced_steps_;
}

// The part of the other engines of its machine that compute, from 0 to 1.
double Cluster::BusyNeighbours(int32_t which) const {
  const int32_t first = which - which % options_.machine_engines;
  const int32_t end = std::min(first + options_.machine_engines, options_.engines);
  double busy = 0;
  for (int32_t e = first; e < end; ++e) {
    busy += e != which && engines_[static_cast<size_t>(e)].running ? 1 : 0;
  }
  return busy / std::max(1, options_.machine_engines - 1);
}

// Groups wait for each other: the fullest decides.
double Cluster::StepSeconds(int32_t which) {
  const ClusterEngine& engine = engines_[static_cast<size_t>(which)];
  double seconds[2] = {};
  for (const size_t clock : {0, 1}) {
    if (clock == 1 && options_.machine_engines == 1) continue;
    std::span<const Row> rest = engine.plan.rows;
    for (const int32_t count : engine.plan.dp_rank_rows) {
      const auto rows = static_cast<size_t>(count);
      if (rows > 0) {
        seconds[clock] =
            std::max(seconds[clock], times_.SecondsOf(rest.first(rows), engine.window, clock));
      }
      rest = rest.subspan(rows);
    }
  }
  return std::lerp(seconds[0], seconds[1], BusyNeighbours(which));
}

}  // namespace

Result<ClusterReport> SimulateCluster(const ModelSpec& spec, const Hardware& hardware,
                                      const ForecastOptions& forecast,
                                      const ClusterOptions& options,
                                      const std::vector<ClusterRequest>& requests) {
  CHECK(options.engines > options.prefill_engines && options.prefill_engines >= 0 &&
        !requests.empty());
  CHECK(options.scale_requests <= 0 || (options.prefill_engines == 0 && options.engines_min >= 1 &&
                                        options.engines_min <= options.engines));
  int64_t longest = 0;
  for (const ClusterRequest& request : requests) {
    longest = std::max<int64_t>(longest, request.prompt_tokens() + request.answer_tokens());
  }
  if (spec.context_tokens_max > 0) longest = std::min<int64_t>(longest, spec.context_tokens_max);
  CHECK(options.shared.has_value() == (options.machine_engines > 1));
  std::vector<StepClock> clocks;
  for (const Hardware& of : {hardware, options.shared.value_or(hardware)}) {
    ASSIGN_OR_RETURN(StepClock clock, StepClock::Create(spec, options.mesh, of, forecast));
    clocks.push_back(std::move(clock));
  }
  SchedulerConfig config{.context_tokens_max = static_cast<int32_t>(longest),
                         .step_tokens_max = options.step_tokens_max,
                         .running_max = options.running_max,
                         .waiting_max = std::numeric_limits<int32_t>::max(),
                         .vocabulary = spec.vocabulary,
                         .dp_ranks = options.mesh.dp};
  ASSIGN_OR_RETURN(config.cache, clocks.front().Cache(longest, options.running_max));
  config.handoff = options.prefill_engines > 0;
  config.decode_latency_us = options.decode_latency_us;
  if (config.handoff && hardware.network_bytes_per_second <= 0 &&
      hardware.link_bytes_per_second <= 0) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} has no network_bytes_per_second and no link_bytes_per_second; "
                             "prefill engines need one to send pages",
                             hardware.name)};
  }
  ASSIGN_OR_RETURN(ClusterReport report, Cluster(StepTimes(std::move(clocks), options.overlap),
                                                 config, hardware, options, requests)
                                             .Run());
  if (options.balances.empty()) report.expert_balance = forecast.expert_balance;
  return report;
}

}  // namespace braid
