// Repeats a recorded run and compares: every plan by its hash and, with an executor, every token
// and log-probability. One thread.
#pragma once

#include <functional>

#include "scheduler/event_log.h"
#include "scheduler/executor.h"

namespace braid {

struct ReplayReport {
  int64_t events = 0, requests = 0;
  int64_t plans = 0;   // compared, without empty ones
  int64_t tokens = 0;  // sampled; compared when there is an executor
  bool truncated = false;
};

// Reads the log to its end. `executor` may be null: then results are taken from the log. Stops at
// the first difference with kInternal, and at a log that no run can have written with kInvalid.
// `ended` hears of each request once, as it ends.
Result<ReplayReport> Replay(RecordSource& log, Executor* executor,
                            const std::function<void(const ReplayReport&)>& progress = nullptr,
                            const std::function<void(RequestId)>& ended = nullptr);

}  // namespace braid
