// The engine thread's loop and the inbox in front of it; see the header. One mutex guards the inbox
// and the published figures; scheduler, executor and the table of sinks belong to the thread in
// Run.
#include "scheduler/driver.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace braid {
namespace {

// How often a sleeping loop updates its heartbeat.
constexpr std::chrono::milliseconds kHeartbeat{200};

enum class Stopping : uint8_t { kNo, kDrain, kNow };

}  // namespace

struct Driver::State {
  State(Scheduler s, Executor& e, DriverConfig c)
      : scheduler(std::move(s)), executor(e), config(c) {}

  // Waits until there is work; false when the loop must end.
  bool CollectEvents(bool work_in_flight, std::vector<Event>& events);
  bool holds() const { return paused && stopping == Stopping::kNo; }
  // Records the event and gives it to the scheduler.
  void Apply(const Event& event);
  void AuditIfIdle(int64_t now_us);
  void StartStep(int64_t now_us);
  void EndStep();
  void Deliver();
  void AbortAll();
  void Publish();

  Scheduler scheduler;
  Executor& executor;
  const DriverConfig config;
  std::map<RequestId, OutputSink*> sinks;  // of the requests that are alive, in order of id
  int32_t in_flight = 0;
  DriverStats figures;  // of the engine thread; published under the mutex
  int64_t audited_us = 0;

  std::atomic<int64_t> ids{0};
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<Event> inbox;
  std::vector<std::pair<RequestId, OutputSink*>> inbox_sinks;  // one per Submit in the inbox
  Stopping stopping = Stopping::kNo;
  bool paused = false;
  DriverStats published;
};

Driver::Driver(Scheduler scheduler, Executor& executor, DriverConfig config)
    : state_(std::make_unique<State>(std::move(scheduler), executor, config)) {
  CHECK(config.overlap_depth == 0 || config.overlap_depth == 1, "overlap depth {}",
        config.overlap_depth);
  state_->Publish();
}

Driver::~Driver() = default;

RequestId Driver::NewRequestId() { return RequestId(state_->ids.fetch_add(1)); }

Status Driver::Submit(Request request, OutputSink* sink) {
  CHECK(sink != nullptr && request.id.valid());
  RETURN_IF_ERROR(state_->scheduler.Admissible(request));
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopping != Stopping::kNo) {
      return Error{ErrorCode::kUnavailable, "the server is shutting down"};
    }
    const int32_t waiting =
        state_->published.scheduler.waiting + static_cast<int32_t>(state_->inbox_sinks.size());
    if (waiting >= state_->scheduler.config().waiting_max) {
      return Error{ErrorCode::kExhausted,
                   fmt::format("the queue is full: {} requests wait, and at most {} may", waiting,
                               state_->scheduler.config().waiting_max)};
    }
    state_->inbox_sinks.emplace_back(request.id, sink);
    state_->inbox.emplace_back(std::in_place_type<braid::Submit>, std::move(request));
  }
  state_->wake.notify_one();
  return {};
}

void Driver::Abort(RequestId id, FinishReason reason) {
  {
    std::lock_guard lock(state_->mutex);
    state_->inbox.emplace_back(std::in_place_type<braid::Abort>, id, reason);
  }
  state_->wake.notify_one();
}

void Driver::FlushCache() {
  {
    std::lock_guard lock(state_->mutex);
    state_->inbox.emplace_back(braid::FlushCache{});
  }
  state_->wake.notify_one();
}

void Driver::SetPaused(bool paused) {
  {
    std::lock_guard lock(state_->mutex);
    state_->paused = paused;
    state_->published.paused = state_->holds();
  }
  state_->wake.notify_one();
}

void Driver::Stop(bool now) {
  {
    std::lock_guard lock(state_->mutex);
    if (now) {
      state_->stopping = Stopping::kNow;
    } else if (state_->stopping == Stopping::kNo) {
      state_->stopping = Stopping::kDrain;
    }
  }
  state_->wake.notify_one();
}

DriverStats Driver::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->published;
}

const SchedulerConfig& Driver::config() const { return state_->scheduler.config(); }

// One turn: events in, a step launched, at most `overlap_depth` steps left in flight.
void Driver::Run() {
  State& s = *state_;
  std::vector<Event> events;
  while (s.CollectEvents(s.in_flight > 0, events)) {
    for (const Event& event : s.executor.Exchange(std::move(events))) s.Apply(event);
    events.clear();
    s.StartStep(MonotonicUs());
    while (s.in_flight > s.config.overlap_depth) s.EndStep();
    s.Deliver();
    s.AuditIfIdle(MonotonicUs());
    s.Publish();
  }
  s.AbortAll();
  while (s.in_flight > 0) s.EndStep();
  s.Deliver();
  s.Publish();
  CHECK(s.scheduler.idle() && s.sinks.empty(), "{} requests are left", s.sinks.size());
}

bool Driver::State::CollectEvents(bool work_in_flight, std::vector<Event>& events) {
  std::unique_lock lock(mutex);
  const auto something = [&] {
    return !inbox.empty() || stopping != Stopping::kNo || work_in_flight ||
           (!paused && !scheduler.idle());
  };
  while (!wake.wait_for(lock, kHeartbeat, something)) published.heartbeat_us = MonotonicUs();
  for (const auto& [id, sink] : inbox_sinks) {
    CHECK(sinks.emplace(id, sink).second, "request id {} is used twice", id.value);
  }
  // Requests that have left the inbox count as waiting until the next Publish.
  published.scheduler.waiting += static_cast<int32_t>(inbox_sinks.size());
  inbox_sinks.clear();
  events.swap(inbox);
  inbox.clear();
  figures.paused = holds();
  if (stopping == Stopping::kDrain) return !events.empty() || work_in_flight || !scheduler.idle();
  if (stopping == Stopping::kNow) {
    for (const Event& event : events) Apply(event);
    events.clear();
    return false;
  }
  return true;
}

void Driver::State::Apply(const Event& event) {
  if (config.event_log != nullptr) config.event_log->Add(event);
  scheduler.Apply(event);
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
  Apply(ResetCache{});
}

void Driver::State::StartStep(int64_t now_us) {
  if (figures.paused) {
    if (in_flight > 0) EndStep();
    return;
  }
  Plan plan = scheduler.NextPlan();
  if (config.event_log != nullptr) {
    config.event_log->Add(plan);
    if (const Status status = config.event_log->Flush(); !status) {
      LogError("{}", status.error().message);
    }
  }
  if (!plan.empty()) {
    if (in_flight++ == 0) figures.step_started_us = now_us;
    figures.step_rows = static_cast<int32_t>(plan.rows.size());
    figures.step_tokens = static_cast<int32_t>(plan.tokens.size());
    for (const Admission& admission : plan.admissions) {
      const auto at = sinks.find(admission.request->id);
      if (at != sinks.end()) at->second->OnAdmitted();
    }
    Publish();  // before the step: it may hang
    executor.Launch(std::move(plan));
    return;
  }
  if (in_flight > 0) {
    EndStep();
    return;
  }
  CHECK(scheduler.idle(), "nothing can run, and {} requests wait", scheduler.stats().waiting);
}

void Driver::State::EndStep() {
  StepDone done = executor.Wait();
  --in_flight;
  const int64_t now_us = MonotonicUs();
  figures.step_us_last = now_us - figures.step_started_us;
  done.duration_us = figures.step_us_last;
  Apply(std::move(done));
  figures.step_started_us = in_flight > 0 ? now_us : 0;
}

void Driver::State::Deliver() {
  for (Output& output : scheduler.TakeOutputs()) {
    const auto at = sinks.find(output.id);
    if (at == sinks.end()) continue;  // another rank's request
    OutputSink* sink = at->second;
    if (output.finish) sinks.erase(at);
    sink->OnOutput(std::move(output));
  }
}

void Driver::State::AbortAll() {
  for (const auto& [id, sink] : sinks) Apply(braid::Abort{id});
}

void Driver::State::Publish() {
  figures.scheduler = scheduler.stats();
  figures.heartbeat_us = MonotonicUs();
  std::lock_guard lock(mutex);
  published = figures;
  published.paused = holds();  // perhaps since the step began
}

}  // namespace braid
