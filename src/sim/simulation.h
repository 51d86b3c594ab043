// Runs a workload through the real scheduler and the hash LM, and checks after every step that
// nothing is lost, shared or late, and at the end that every request got exactly what the oracle
// says. A pure function of the seed; one thread. A violation stops the program; a wrong answer is
// an error.
#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"
#include "sim/workload.h"

namespace braid {

struct SimulationStats {
  uint64_t trace = 0;  // hash of all plans and outputs: equal seeds give equal traces
  int64_t steps = 0, rows = 0, tokens = 0;
  int64_t preemptions = 0, protected_requests = 0, aborted = 0, failed = 0, refused = 0,
          stopped = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0;  // of requests at their first admission
  std::array<int64_t, kReuseStops> reuse_stops{};
  int64_t evictions_full = 0, evictions_state = 0;
  int64_t late_tokens = 0;  // sampled for requests that had ended
};

Result<SimulationStats> RunSimulation(uint64_t seed);
Result<SimulationStats> RunWorkload(const Workload& workload);

}  // namespace braid
