// The engine thread's loop and the inbox in front of it. Everything that happens is an event: it is
// posted, agreed with the other ranks, applied to the scheduler, and answered by a plan. One turn:
//
//   take what was posted -> Executor::Exchange -> apply -> deliver outputs -> plan -> launch
//
// Whatever can change a plan comes this way, so equal events make equal plans on every rank and in
// a replay. Submit, Abort, Post and the like may be called from any thread; the rest happens on the
// thread that calls Run. Sinks are called on that thread and must not block: they hand the output
// to their own thread. Steps and moves report by events too, so the loop waits in one place
// only: for its inbox or, on a rank that follows, for its leader.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "scheduler/event_log.h"
#include "scheduler/executor.h"
#include "scheduler/scheduler.h"

namespace braid {

// An idle loop turns at least this often, so that the other ranks of a group hear of it.
inline constexpr int64_t kHeartbeatUs = 200'000;

struct OutputSink {
  virtual ~OutputSink() = default;
  // The request's first row is about to run; called again after a preemption.
  virtual void OnAdmitted() {}
  // The sink owns `output`. The driver forgets the sink after the output with `finish` set.
  virtual void OnOutput(Output output) = 0;
};

// Hears of stored prefixes as they change; on the driver's thread, and must not block.
struct PrefixListener {
  virtual ~PrefixListener() = default;
  virtual void OnPrefixes(DpRankId rank, PrefixChanges changes) = 0;
};

struct DriverStats {
  SchedulerStats scheduler;
  int64_t step_us_last = 0;                // duration of the last step
  int64_t step_started_us = 0;             // clock when the step in flight began, 0 when none is
  int64_t heartbeat_us = 0;                // clock of the loop's last turn
  int32_t step_rows = 0, step_tokens = 0;  // of the last step that began
  bool paused = false;
  int64_t audits = 0;   // recounts of all blocks, made while idle
  int64_t repairs = 0;  // of those, inconsistent ones: all cached prefixes were dropped
};

struct DriverConfig {
  int32_t overlap_depth = 0;            // steps planned ahead of the one that runs: 0 or 1
  int64_t audit_every_us = 60'000'000;  // at most so often, and only while nothing runs; 0: never
  EventLogWriter* event_log = nullptr;  // records the run; null: none; outlives the driver
  // Another engine computes the prompts of those requests where it can (MayReceive).
  bool prompts_elsewhere = false;
  // Empty: there are none. `wait`: returns when their files are removed; the engine thread does
  // not.
  std::function<void(bool wait)> clear_tiers;
  PrefixListener* prefixes = nullptr;  // null: none; with report_prefixes; outlives the driver
  RunListener* followers = nullptr;    // the other ranks; null: none; outlives the driver
  // While pages move or grammars are compiled, an idle loop turns at least so often: other ranks
  // may have ends to report.
  int64_t reports_us = kHeartbeatUs;
  std::function<int64_t()> now_us = MonotonicUs;  // called on any thread
};

class Driver final : public EventSink {
 public:
  Driver(Scheduler scheduler, Executor& executor, DriverConfig config);
  ~Driver() override;

  // A fresh id for a request; unique in this process.
  RequestId NewRequestId();
  // Checks the request against the scheduler's limits and queues it. The sink must live until its
  // last output. Fails with kUnavailable after Stop and kExhausted when too many wait.
  Status Submit(Request request, OutputSink* sink);
  void Abort(RequestId id, FinishReason reason = FinishReason::kAbort);
  // What else happens, of executors and whoever moves pages. Events of no consequence here, for
  // requests that have ended, are ignored.
  void Post(Event event) override;

  // Forgets every cached prefix that no running request uses, before the next step; `tiers`: also
  // what the tiers below the arena hold.
  void FlushCache(bool tiers = false);

  // While paused no step begins; requests can still be submitted and aborted. Stop ends the pause.
  void SetPaused(bool paused);

  // Serves until Stop; returns when no request is alive and nothing in flight. Stop(now) ends the
  // requests by kAbort. An error of Exchange ends them, and Run, with it.
  Status Run();
  void Stop(bool now);

  // Run, turn by turn and without waiting, for who simulates what happens around it. False: Run
  // would return `ended()`.
  bool Turn();
  const Status& ended() const;
  const Scheduler& scheduler() const;

  DriverStats stats() const;
  const SchedulerConfig& config() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
