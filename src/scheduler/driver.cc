// See the header. One mutex guards what other threads ask for and the published figures; scheduler,
// executor and the table of clients belong to the thread in Run.
#include "scheduler/driver.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "scheduler/inbox.h"
#include "scheduler/limits.h"

namespace braid {

struct Driver::State {
  struct Client {
    OutputSink* sink = nullptr;
    int64_t arrived_us = 0;  // clock of Submit
  };

  State(Scheduler s, Executor& e, DriverConfig c)
      : scheduler(std::move(s)), executor(e), config(std::move(c)) {}

  std::vector<Event> Take();
  void Measure(StepDone& done, int64_t now_us);
  void Apply(const Event& event);
  int64_t TimeOf(const Event& event) const;
  void LaunchSteps(EventSink& events);
  Plan NextPlan();
  void AuditIfIdle(int64_t now_us);
  void Deliver();
  void TellPrefixes();
  void Fail(const Error& error);
  void Publish();
  bool ShowsPause() const { return wants_pause && refusal.ok(); }

  Scheduler scheduler;
  Executor& executor;
  const DriverConfig config;
  std::map<RequestId, Client> clients;  // of the requests that are alive, in order of id
  int32_t in_flight = 0;
  bool repair = false;  // an audit has failed: before anything else, the next turn resets the cache
  DriverStats figures;  // of the engine thread; published under the mutex
  int64_t audited_us = 0;
  Status ended;  // an error of Exchange

  std::atomic<int64_t> ids{0};
  Inbox inbox;
  mutable std::mutex mutex;
  std::vector<std::pair<RequestId, Client>> new_clients;  // one per Submit in the inbox
  bool wants_pause = false;
  Status refusal;  // why nothing more can be submitted
  DriverStats published;
};

Driver::Driver(Scheduler scheduler, Executor& executor, DriverConfig config)
    : state_(std::make_unique<State>(std::move(scheduler), executor, std::move(config))) {
  const int32_t depth = state_->config.overlap_depth;
  CHECK(depth == 0 || depth == 1, "overlap depth {}", depth);
  state_->Publish();
}

Driver::~Driver() = default;

RequestId Driver::NewRequestId() { return RequestId(state_->ids.fetch_add(1)); }

Status Driver::Submit(Request request, OutputSink* sink) {
  CHECK(sink != nullptr && request.id.valid());
  if (state_->config.prompts_elsewhere && MayReceive(state_->scheduler.config(), request)) {
    request.role = RequestRole::kDecode;
  }
  RETURN_IF_ERROR(state_->scheduler.Admissible(request));
  std::lock_guard lock(state_->mutex);
  RETURN_IF_ERROR(state_->refusal);
  const int32_t waiting =
      state_->published.scheduler.waiting + static_cast<int32_t>(state_->new_clients.size());
  if (waiting >= state_->scheduler.config().waiting_max) {
    return Error{ErrorCode::kExhausted,
                 fmt::format("the queue is full: {} requests wait, and at most {} may", waiting,
                             state_->scheduler.config().waiting_max)};
  }
  state_->new_clients.emplace_back(request.id, State::Client{sink, state_->config.now_us()});
  state_->inbox.Post(braid::Submit{std::move(request)});
  return {};
}

void Driver::Abort(RequestId id, FinishReason reason) { Post(braid::Abort{id, reason}); }

// The tiers first, and once more in the event's place: what was planned between may not stay.
void Driver::FlushCache(bool tiers) {
  if (tiers && state_->config.clear_tiers) state_->config.clear_tiers(true);
  Post(braid::FlushCache{tiers});
}

void Driver::Post(Event event) { state_->inbox.Post(std::move(event)); }

void Driver::SetPaused(bool paused) {
  std::lock_guard lock(state_->mutex);
  state_->wants_pause = paused;
  state_->published.paused = state_->ShowsPause();
  state_->inbox.Post(PauseRequested{paused});
}

void Driver::Stop(bool now) {
  std::lock_guard lock(state_->mutex);
  if (state_->refusal.ok()) {
    state_->refusal = Error{ErrorCode::kUnavailable, "the server is shutting down"};
  }
  state_->inbox.Post(StopRequested{now});
}

const Status& Driver::ended() const { return state_->ended; }

const Scheduler& Driver::scheduler() const { return state_->scheduler; }

DriverStats Driver::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->published;
}

const SchedulerConfig& Driver::config() const { return state_->scheduler.config(); }

Status Driver::Run() {
  State& s = *state_;
  do {
    const bool awaits = s.scheduler.moves() > 0 || s.scheduler.unready() > 0;
    const int64_t most_us = awaits ? s.config.reports_us : kHeartbeatUs;
    if (!s.executor.follows() && !s.repair) s.inbox.Wait(most_us);
  } while (Turn());
  return s.ended;
}

// Outputs leave before the steps begin, for a step may run within Launch.
bool Driver::Turn() {
  State& s = *state_;
  Result<std::vector<Event>> events = s.executor.Exchange(s.Take());
  if (!events.ok()) {
    s.Fail(events.error());
    return false;
  }
  for (const Event& event : *events) s.Apply(event);
  s.Deliver();
  s.TellPrefixes();
  if (!events->empty()) {
    s.LaunchSteps(*this);
  } else if (s.config.followers != nullptr) {
    s.config.followers->Idle();
  }
  const bool ends = s.scheduler.stopping() && s.scheduler.idle();
  if (!ends) s.AuditIfIdle(s.config.now_us());
  s.Publish();
  CHECK(!ends || (s.in_flight == 0 && s.clients.empty()), "{} requests are left", s.clients.size());
  return !ends;
}

std::vector<Event> Driver::State::Take() {
  std::vector<Event> events;
  {
    std::lock_guard lock(mutex);
    events = inbox.Take();
    for (const auto& [id, client] : new_clients) {
      CHECK(clients.emplace(id, client).second, "request id {} is used twice", id.value);
    }
    // Requests that have left the inbox count as waiting until the next Publish.
    published.scheduler.waiting += static_cast<int32_t>(new_clients.size());
    new_clients.clear();
  }
  for (Event& event : events) {
    if (StepDone* done = std::get_if<StepDone>(&event)) Measure(*done, config.now_us());
  }
  if (std::exchange(repair, false)) events.insert(events.begin(), ResetCache{});
  return events;
}

// Before the exchange: what a step took here is what it took for every rank.
void Driver::State::Measure(StepDone& done, int64_t now_us) {
  if (figures.step_started_us == 0) return;
  figures.step_us_last = now_us - figures.step_started_us;
  done.duration_us = figures.step_us_last;
  figures.step_started_us = now_us;  // of the next, if one is in flight
}

void Driver::State::Apply(const Event& event) {
  if (config.event_log != nullptr) config.event_log->Add(event, TimeOf(event));
  if (config.followers != nullptr) config.followers->Add(event);
  if (std::holds_alternative<StepDone>(event) && --in_flight == 0) figures.step_started_us = 0;
  const auto* flush = std::get_if<braid::FlushCache>(&event);
  if (flush != nullptr && flush->tiers && config.clear_tiers) config.clear_tiers(false);
  scheduler.Apply(event);
}

// A request's is when it came; it may have waited for the end of a step since.
int64_t Driver::State::TimeOf(const Event& event) const {
  const auto* submit = std::get_if<braid::Submit>(&event);
  const auto at = submit != nullptr ? clients.find(submit->request.id) : clients.end();
  return at != clients.end() ? at->second.arrived_us : config.now_us();
}

// As many as may be in flight.
void Driver::State::LaunchSteps(EventSink& events) {
  while (in_flight <= config.overlap_depth) {
    Plan plan = NextPlan();
    if (plan.empty()) {
      CHECK(in_flight > 0 || scheduler.idle() || scheduler.paused() || scheduler.moves() > 0 ||
                scheduler.unready() > 0,
            "nothing can run, and {} requests wait", scheduler.stats().waiting);
      return;
    }
    if (in_flight++ == 0) figures.step_started_us = config.now_us();
    figures.step_rows = static_cast<int32_t>(plan.rows.size());
    figures.step_tokens = static_cast<int32_t>(plan.tokens.size());
    for (const Admission& admission : plan.admissions) {
      const auto at = clients.find(admission.request->id);
      if (at != clients.end()) at->second.sink->OnAdmitted();
    }
    TellPrefixes();
    Publish();  // before the step: it may hang
    executor.Launch(std::move(plan), events);
  }
}

Plan Driver::State::NextPlan() {
  Plan plan = scheduler.NextPlan();
  if (config.event_log != nullptr) {
    config.event_log->Add(plan);
    if (const Status status = config.event_log->Flush(); !status) {
      LogError("{}", status.error().message);
    }
  }
  if (config.followers != nullptr) config.followers->Add(plan);
  return plan;
}

// Inconsistent accounting costs the cached prefixes; the server goes on.
void Driver::State::AuditIfIdle(int64_t now_us) {
  if (config.audit_every_us == 0 || now_us - audited_us < config.audit_every_us) return;
  if (in_flight > 0 || !scheduler.idle()) return;
  audited_us = now_us;
  ++figures.audits;
  const Status status = scheduler.Audit();
  if (status.ok()) return;
  if (figures.repairs++ == 0) {  // log the first one only; the figures count all
    LogError(
        "{}: cache accounting is inconsistent; dropping all cached prefixes. Please report this",
        status.error().message);
  }
  repair = true;
}

void Driver::State::Deliver() {
  for (Output& output : scheduler.TakeOutputs()) {
    const auto at = clients.find(output.id);
    if (at == clients.end()) continue;  // another rank's request
    OutputSink* sink = at->second.sink;
    if (output.finish) clients.erase(at);
    sink->OnOutput(std::move(output));
  }
}

void Driver::State::TellPrefixes() {
  if (config.prefixes == nullptr) return;
  for (int32_t r = 0; r < scheduler.config().dp_ranks; ++r) {
    PrefixChanges changes = scheduler.TakePrefixChanges(DpRankId(r));
    if (!changes.empty()) config.prefixes->OnPrefixes(DpRankId(r), std::move(changes));
  }
}

// The group is lost. Nobody can agree on anything any more, so this rank ends what it has promised.
void Driver::State::Fail(const Error& error) {
  ended = error;
  {
    std::lock_guard lock(mutex);
    refusal = Error{ErrorCode::kUnavailable, error.message};
    clients.insert(new_clients.begin(), new_clients.end());
    new_clients.clear();
  }
  for (const auto& [id, client] : std::exchange(clients, {})) {
    Output output{.id = id};
    output.finish = FinishReason::kError;
    output.error_code = ErrorCode::kUnavailable;
    output.error = error.message;
    client.sink->OnOutput(std::move(output));
  }
  Publish();
}

void Driver::State::Publish() {
  figures.scheduler = scheduler.stats();
  figures.heartbeat_us = config.now_us();
  std::lock_guard lock(mutex);
  published = figures;
  published.paused = ShowsPause();  // perhaps since the step began
}

}  // namespace braid
