// What one seed means: an arena, a scheduler's figures, requests with their arrival steps, and
// faults. Each feature and each fault is off in half of the seeds, so that rare combinations come
// up. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/scheduler.h"

namespace braid {

struct ArrivingRequest {
  int64_t step = 0;         // turn of the loop in which it is submitted
  int64_t abort_step = -1;  // turn in which it is aborted, -1: never
  Request request;
};

struct Workload {
  SchedulerConfig config;
  int32_t overlap_depth = 0;
  bool late = false;             // steps run when they are waited for
  int32_t row_error_one_in = 0;  // 0: rows do not fail
  uint64_t error_seed = 0;
  int64_t flush_step = -1;                // turn in which the prefix cache is flushed, -1: never
  std::vector<ArrivingRequest> requests;  // by step
};

Workload MakeWorkload(uint64_t seed);

}  // namespace braid
