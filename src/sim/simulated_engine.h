// What a simulation runs: a real driver on a hash executor, or two that are the ranks of a group,
// with clocks of their own. Nothing here waits: a turn takes what was posted. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "scheduler/driver.h"
#include "sim/hash_executor.h"
#include "sim/workload.h"

namespace braid {

struct SimulatedRank {
  explicit SimulatedRank(const Workload& workload);
  int64_t now_us = 1;
  uint64_t plans = 0;  // hash of those of the current turn
  HashExecutor executor;
  Driver driver;
};

class SimulatedEngine {
 public:
  explicit SimulatedEngine(const Workload& workload);

  SimulatedRank& leader() { return *ranks_.front(); }
  Driver& driver() { return leader().driver; }
  HashExecutor& executor() { return leader().executor; }
  const Scheduler& scheduler() { return driver().scheduler(); }

  // For the requests that come now; `on_launch` sees the leader's plans.
  void Begin(const Workload& wave, std::function<void(const Plan&)> on_launch);
  // One turn of every rank; false when all have ended. An error when ranks do not do the same.
  Result<bool> Turn();
  bool ended() const { return ended_; }
  // The oldest step of every rank comes back, or a move ends: what was posted.
  StepDone EndStep();
  PagesMoved EndFakeMove(int32_t index, bool fails);
  // The tier drops one of its parts and says so.
  void DropStored(uint64_t draw);
  // A new engine finds what another one has left in its tier.
  void AdoptTier(SimulatedEngine& from);
  // The ranks have lost each other; the next turn ends all of them.
  void LoseGroup() { lost_ = true; }

 private:
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::vector<Event> agreed_;  // of the turn, by the leader
  uint64_t clock_seed_ = 0, ticks_ = 0;
  bool lost_ = false, ended_ = false;
};

}  // namespace braid
