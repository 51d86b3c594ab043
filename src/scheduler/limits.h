// What can run at all: the scheduler's own figures and each request's. Pure.
#pragma once

#include "base/result.h"
#include "scheduler/config.h"
#include "scheduler/request.h"

namespace braid {

// Whether the figures make a scheduler; see Scheduler::Create.
Status CheckConfig(const SchedulerConfig& config);
// See Scheduler::Admissible. Whatever a client or another engine asked for: what passes indexes
// nothing outside the vocabulary and makes no NaN of finite logits.
Status CheckRequest(const SchedulerConfig& config, const Request& request);
// Whether another engine may compute its prompt: there is a block of it, its tokens are not scored,
// and at least one token follows the first.
bool MayReceive(const SchedulerConfig& config, const Request& request);
// The longest that a request may get: prompt + output, within the context.
int32_t LengthMax(const SchedulerConfig& config, const Request& request);
// How many of `length_max` tokens need cache.
int32_t StoredMax(const Request& request, int32_t length_max);

}  // namespace braid
