// Many seeds, in processes of their own so that a violation ends one of them and not the caller;
// the first failing seed is made as small as it gets. One thread; forks.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sim/simulation.h"

namespace braid {

struct SimulationOptions {
  WorkloadOptions workload;
  uint64_t from = 1;      // the first seed
  int64_t seeds = 1000;   // how many; 0: no limit of this kind
  int64_t steps = 0;      // as many seeds as it takes to run so many steps; 0: no limit
  double minutes = 0;     // as many as fit; 0: no limit
  int32_t processes = 1;  // each takes every n-th seed
  // One engine per process lives through all of its seeds, as a server does.
  bool soak = false;
};

struct SimulationFailure {
  uint64_t seed = 0;
  std::string message;
  WorkloadOptions smallest;  // still fails
  std::string command;       // repeats it
};

struct SimulationReport {
  int64_t seeds = 0;
  SimulationStats total;
  double seconds = 0;
  // Resident bytes of all processes after a tenth of the time, and at the end.
  int64_t resident_early = 0, resident_end = 0;
  std::optional<SimulationFailure> failure;  // of the lowest seed that failed
};

// kInvalid when nothing ends the run. `progress` is called a few times a second.
Result<SimulationReport> RunSimulation(
    const SimulationOptions& options,
    const std::function<void(int64_t seeds, int64_t steps)>& progress = nullptr);

// Fewer faults, then fewer requests, then shorter prompts and answers, as long as the seed fails.
SimulationFailure Shrink(uint64_t seed, const WorkloadOptions& options, std::string message);

}  // namespace braid
