// What another engine asks for, as a request of this one. Pure; any thread.
#pragma once

#include "base/result.h"
#include "handoff/message.h"
#include "scheduler/config.h"
#include "scheduler/request.h"

namespace braid::handoff {

// Without an id. It ends with its first token, which the partner judges; it has a grammar only if
// this holds for that token. An error: this engine, whose config it is, cannot compute it.
Result<Request> RequestOf(const Ask& ask, const SchedulerConfig& config);

}  // namespace braid::handoff
