// A queue of events in time: arrivals, ends of steps, failures and repairs.
#include "cluster/cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>
#include <unordered_map>

#include "base/check.h"
#include "base/rng.h"
#include "scheduler/scheduler.h"

namespace braid {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr size_t kMoments = 200;

struct Happening {
  enum Kind : uint8_t { kArrival, kStepEnd, kFailure, kRepair };
  int64_t at_ns = 0;
  int64_t number = 0;  // of equals the one that was added first
  Kind kind = kArrival;
  int32_t which = 0;  // request or engine
  int64_t life = 0;   // of the engine: what a dead one had planned does not happen
  bool operator>(const Happening& o) const {
    return std::pair(at_ns, number) > std::pair(o.at_ns, o.number);
  }
};

struct Live {
  int32_t engine = -1;
  int64_t arrived_ns = 0, last_ns = -1;
  int32_t output = 0;  // tokens
};

struct Engine {
  std::optional<Scheduler> scheduler;  // none: it has failed
  Plan plan;                           // in flight
  bool running = false;
  int64_t life = 0, busy_ns = 0;
  std::vector<int32_t> requests;  // that it has
};

class Cluster {
 public:
  Cluster(const StepClock& clock, const SchedulerConfig& config, const ClusterOptions& options,
          const std::vector<ClusterRequest>& requests)
      : clock_(clock),
        config_(config),
        options_(options),
        requests_(requests),
        live_(requests.size()),
        followers_(requests.size(), -1),
        engines_(static_cast<size_t>(options.engines)),
        rng_(options.seed) {}

  Result<ClusterReport> Run();

 private:
  void Add(int64_t at_ns, Happening::Kind kind, int32_t which, int64_t life = 0) {
    queue_.push({at_ns, number_++, kind, which, life});
  }
  Status Start(Engine& engine);
  void Arrive(int32_t request);
  int32_t Route(const ClusterRequest& request);
  void Submit(int32_t request);
  void Begin(int32_t engine);
  void EndStep(int32_t engine);
  void TakeOutput(Engine& engine, const Output& output);
  void End(Engine& engine, int32_t request);
  void Fail(int32_t engine);
  void ScheduleFailure(int32_t engine);
  double StepSeconds(const Plan& plan);
  double RankSeconds(std::span<const Row> rows);
  ClusterMoment& Now();

  const StepClock& clock_;
  const SchedulerConfig& config_;
  const ClusterOptions& options_;
  const std::vector<ClusterRequest>& requests_;
  std::vector<Live> live_;
  std::vector<int32_t> followers_;  // the next turn of each request
  std::vector<Engine> engines_;
  std::vector<int32_t> homeless_;  // requests that came while no engine was up
  Rng rng_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;
  std::unordered_map<uint64_t, double> step_seconds_;
  int64_t number_ = 0, now_ns_ = 0, open_ = 0;
  size_t turn_ = 0;  // of round robin
  ClusterReport report_;
};

Status Cluster::Start(Engine& engine) {
  ASSIGN_OR_RETURN(Scheduler scheduler, Scheduler::Create(config_));
  engine.scheduler.emplace(std::move(scheduler));
  return {};
}

ClusterMoment& Cluster::Now() {
  const double at = static_cast<double>(now_ns_) * kNanosecond / report_.moment_seconds;
  const auto index = static_cast<size_t>(at);
  if (index >= report_.moments.size()) {
    ClusterMoment moment;
    for (const Engine& engine : engines_) {
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
  for (int32_t e = 0; e < options_.engines; ++e) {
    RETURN_IF_ERROR(Start(engines_[static_cast<size_t>(e)]));
    ScheduleFailure(e);
  }
  while (open_ > 0) {
    CHECK(!queue_.empty(), "{} requests never end", open_);
    const Happening next = queue_.top();
    queue_.pop();
    now_ns_ = next.at_ns;
    Engine& engine =
        engines_[static_cast<size_t>(next.kind == Happening::kArrival ? 0 : next.which)];
    switch (next.kind) {
      case Happening::kArrival:
        Arrive(next.which);
        break;
      case Happening::kStepEnd:
        if (next.life == engine.life) EndStep(next.which);
        break;
      case Happening::kFailure:
        Fail(next.which);
        break;
      case Happening::kRepair:
        RETURN_IF_ERROR(Start(engine));
        ScheduleFailure(next.which);
        for (const int32_t request : std::exchange(homeless_, {})) Submit(request);
        break;
    }
  }
  report_.seconds = static_cast<double>(now_ns_) * kNanosecond;
  for (const Engine& engine : engines_) {
    report_.busy += static_cast<double>(engine.busy_ns) / static_cast<double>(now_ns_) /
                    static_cast<double>(engines_.size());
  }
  return std::move(report_);
}

void Cluster::ScheduleFailure(int32_t engine) {
  if (options_.fail_every_seconds <= 0) return;
  const double wait = -std::log(1 - rng_.Uniform()) * options_.fail_every_seconds;
  Add(now_ns_ + static_cast<int64_t>(wait * 1e9), Happening::kFailure, engine);
}

void Cluster::Fail(int32_t which) {
  Engine& engine = engines_[static_cast<size_t>(which)];
  ++report_.failures;
  ++engine.life;
  engine.scheduler.reset();
  engine.running = false;
  Add(now_ns_ + static_cast<int64_t>(options_.repair_seconds * 1e9), Happening::kRepair, which);
  for (const int32_t request : std::exchange(engine.requests, {})) {
    ++report_.restarted;
    Submit(request);
  }
}

void Cluster::Arrive(int32_t request) {
  live_[static_cast<size_t>(request)].arrived_ns = now_ns_;
  Submit(request);
}

// An engine that is up, or -1.
int32_t Cluster::Route(const ClusterRequest& request) {
  const size_t n = engines_.size();
  size_t from = 0;
  if (options_.route == ClusterRoute::kRoundRobin) from = turn_++ % n;
  if (options_.route == ClusterRoute::kPrefix) {
    // What a conversation begins with: two segments, an introduction and its own first words.
    uint64_t key = 0;
    for (size_t i = 0; i < std::min<size_t>(2, request.prompt.size()); ++i) {
      key = MixBits(key + request.prompt[i].key);
    }
    from = key % n;
  }
  int32_t best = -1;
  for (size_t i = 0; i < n; ++i) {
    const size_t at = (from + i) % n;
    if (!engines_[at].scheduler) continue;
    if (options_.route != ClusterRoute::kLeastLoaded) return static_cast<int32_t>(at);
    if (best < 0 ||
        engines_[at].requests.size() < engines_[static_cast<size_t>(best)].requests.size()) {
      best = static_cast<int32_t>(at);
    }
  }
  return best;
}

void Cluster::Submit(int32_t number) {
  const ClusterRequest& planned = requests_[static_cast<size_t>(number)];
  Live& live = live_[static_cast<size_t>(number)];
  live.engine = Route(planned);
  live.output = 0;
  if (live.engine < 0) {
    homeless_.push_back(number);
    return;
  }
  Engine& engine = engines_[static_cast<size_t>(live.engine)];
  Request request{.id = RequestId(number), .prompt = PromptTokens(planned, config_.vocabulary)};
  request.stop.new_tokens_max = planned.output_tokens;
  engine.requests.push_back(number);
  engine.scheduler->Apply(braid::Submit{std::move(request)});
  const int32_t on = live.engine;
  for (Output& output : engine.scheduler->TakeOutputs()) TakeOutput(engine, output);
  if (!engine.running) Begin(on);
}

void Cluster::Begin(int32_t which) {
  Engine& engine = engines_[static_cast<size_t>(which)];
  engine.plan = engine.scheduler->NextPlan();
  engine.running = !engine.plan.empty();
  if (!engine.running) return;
  ++report_.steps;
  const auto ns = std::max<int64_t>(1, std::llround(StepSeconds(engine.plan) * 1e9));
  engine.busy_ns += ns;
  Add(now_ns_ + ns, Happening::kStepEnd, which, engine.life);
}

void Cluster::EndStep(int32_t which) {
  Engine& engine = engines_[static_cast<size_t>(which)];
  StepDone done{.step = engine.plan.step};
  ClusterMoment& moment = Now();
  for (const Row& row : engine.plan.rows) {
    RowResult& result = done.rows.emplace_back();
    result.request = row.request;
    const auto request = static_cast<size_t>(row.request.value);
    if (row.sample) {
      result.token =
          SegmentToken(requests_[request].answer_key, live_[request].output++, config_.vocabulary);
    }
    if (row.token_count > 1) moment.input_tokens += row.token_count;
  }
  engine.scheduler->Apply(Event{std::move(done)});
  for (Output& output : engine.scheduler->TakeOutputs()) TakeOutput(engine, output);
  Begin(which);
}

void Cluster::TakeOutput(Engine& engine, const Output& output) {
  const auto number = static_cast<int32_t>(output.id.value);
  Live& live = live_[static_cast<size_t>(number)];
  const auto since = [&](int64_t then) {
    return static_cast<double>(now_ns_ - then) * kNanosecond;
  };
  if (!output.tokens.empty()) {
    if (live.last_ns < 0) {
      report_.first_token.Add(since(live.arrived_ns));
    } else {
      report_.inter_token.Add(since(live.last_ns));
    }
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
  End(engine, number);
}

void Cluster::End(Engine& engine, int32_t request) {
  engine.requests.erase(std::ranges::find(engine.requests, request));
  --open_;
  // The next turn comes when its tool has run; those of a refused one never do.
  const int32_t next = followers_[static_cast<size_t>(request)];
  if (next < 0) return;
  Add(now_ns_ + requests_[static_cast<size_t>(next)].at_us * 1000, Happening::kArrival, next);
}

// Groups wait for each other: the fullest decides.
double Cluster::StepSeconds(const Plan& plan) {
  double seconds = 0;
  std::span<const Row> rest = plan.rows;
  for (const int32_t count : plan.dp_rank_rows) {
    const auto rows = static_cast<size_t>(count);
    if (rows > 0) seconds = std::max(seconds, RankSeconds(rest.first(rows)));
    rest = rest.subspan(rows);
  }
  return seconds;
}

double Cluster::RankSeconds(std::span<const Row> rows) {
  StepRows prompts, decodes;
  for (const Row& row : rows) {
    StepRows& of = row.token_count > 1 ? prompts : decodes;
    of.tokens += row.token_count;
    ++of.sequences;
    of.context_tokens += row.start;
    of.logits_rows += row.sample ? 1 : 0;
  }
  // Nearly equal steps take the same time: contexts by 64 tokens, prompts by 16.
  uint64_t key = 0;
  for (StepRows* of : {&prompts, &decodes}) {
    if (of->sequences == 0) continue;
    of->context_tokens = RoundUp(of->context_tokens / of->sequences, 64);
    if (of == &prompts) of->tokens = RoundUp(of->tokens, 16);
  }
  for (const int64_t part : {prompts.tokens, prompts.sequences, prompts.context_tokens,
                             prompts.logits_rows, decodes.tokens, decodes.context_tokens}) {
    key = MixBits(key * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(part) + 1);
  }
  const auto [at, added] = step_seconds_.try_emplace(key, 0);
  if (added) {
    const StepForecast step = clock_.StepOf(prompts, decodes);
    at->second = options_.overlap ? step.seconds_with_overlap() : step.seconds_without_overlap();
  }
  return at->second;
}

}  // namespace

void TimeHistogram::Add(double seconds, int64_t count) {
  const double place = std::log(std::max(seconds, kLeast) / kLeast) / std::log(kGrowth);
  const auto bucket = static_cast<size_t>(place);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  buckets_[bucket] += count;
  sum_ += seconds * static_cast<double>(count);
  count_ += count;
}

double TimeHistogram::Quantile(double q) const {
  const double wanted = q * static_cast<double>(count_);
  int64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen > 0 && static_cast<double>(seen) >= wanted) {
      return kLeast * std::pow(kGrowth, static_cast<double>(i) + 0.5);
    }
  }
  return 0;
}

Result<ClusterReport> SimulateCluster(const ModelSpec& spec, const Hardware& hardware,
                                      const ForecastOptions& forecast,
                                      const ClusterOptions& options,
                                      const std::vector<ClusterRequest>& requests) {
  CHECK(options.engines > 0 && !requests.empty());
  int64_t longest = 0;
  for (const ClusterRequest& request : requests) {
    longest = std::max<int64_t>(longest, request.prompt_tokens() + request.output_tokens);
  }
  if (spec.context_tokens_max > 0) longest = std::min<int64_t>(longest, spec.context_tokens_max);
  ASSIGN_OR_RETURN(const StepClock clock,
                   StepClock::Create(spec, options.mesh, hardware, forecast));
  SchedulerConfig config{.context_tokens_max = static_cast<int32_t>(longest),
                         .step_tokens_max = options.step_tokens_max,
                         .running_max = options.running_max,
                         .waiting_max = std::numeric_limits<int32_t>::max(),
                         .vocabulary = spec.vocabulary,
                         .dp_ranks = options.mesh.dp};
  ASSIGN_OR_RETURN(config.cache, clock.Cache(longest, options.running_max));
  return Cluster(clock, config, options, requests).Run();
}

}  // namespace braid
