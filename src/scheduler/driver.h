// The engine thread's loop: inbox → events → scheduler → executor → outputs. Submit and Abort may
// be called from any thread; everything else happens on the thread that calls Run. Sinks are called
// on that thread and must not block: they hand the output to their own thread.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "scheduler/event_log.h"
#include "scheduler/executor.h"
#include "scheduler/scheduler.h"

namespace braid {

struct OutputSink {
  virtual ~OutputSink() = default;
  // The request's first row is about to run; called again after a preemption.
  virtual void OnAdmitted() {}
  // The sink owns `output`. The driver forgets the sink after the output with `finish` set.
  virtual void OnOutput(Output output) = 0;
};

struct DriverStats {
  SchedulerStats scheduler;
  int64_t step_us_last = 0;                // duration of the last step
  int64_t step_started_us = 0;             // MonotonicUs when the step in flight began, 0 when none
  int64_t heartbeat_us = 0;                // MonotonicUs of the loop's last turn
  int32_t step_rows = 0, step_tokens = 0;  // of the last step that began
  bool paused = false;
  int64_t audits = 0;   // recounts of all blocks, made while idle
  int64_t repairs = 0;  // of those, inconsistent ones: all cached prefixes were dropped
};

struct DriverConfig {
  int32_t overlap_depth = 0;            // steps planned ahead of the one that runs: 0 or 1
  int64_t audit_every_us = 60'000'000;  // at most so often, and only while nothing runs; 0: never
  EventLogWriter* event_log = nullptr;  // records the run; null: none; outlives the driver
};

class Driver {
 public:
  Driver(Scheduler scheduler, Executor& executor, DriverConfig config);
  ~Driver();

  // A fresh id for a request; unique in this process.
  RequestId NewRequestId();
  // Checks the request against the scheduler's limits and queues it. The sink must live until its
  // last output. Fails with kUnavailable after Stop and kExhausted when too many wait.
  Status Submit(Request request, OutputSink* sink);
  void Abort(RequestId id, FinishReason reason = FinishReason::kAbort);

  // Forgets every cached prefix that no running request uses, before the next step.
  void FlushCache();

  // While paused no step begins; requests can still be submitted and aborted. Stop ends the pause.
  void SetPaused(bool paused);

  // Serves until Stop; returns when no request is alive or, after Stop(now), at once with the
  // remaining requests ended by kAbort.
  void Run();
  void Stop(bool now);

  DriverStats stats() const;
  const SchedulerConfig& config() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
