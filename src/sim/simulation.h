// Runs a workload through the real driver and scheduler and the hash LM, and checks after every
// step that nothing is lost, shared or late, and at the end that every request got exactly what the
// oracle says. A pure function of the seed; one thread. A wrong answer is an error; most violations
// stop the program, so runs that may fail belong into a process of their own (sim/seed_runs.h).
//
// What is checked, and the names that messages bear:
//   I-1  every block and slot is owned once, counters agree with a recount       (every step)
//   I-2  pins are those that sequences hold                                      (every step)
//   I-3  nobody writes what another may read, no cell is written twice           (every row)
//   I-4  nothing is read that was not written                                    (every row)
//   I-6  a state is of the depth and the tokens that its place says              (every row)
//   I-7  only what a landed step wrote completely is given to others             (every hand-over)
//   I-8  a row starts where what is in place ends                                (every row)
//   I-9  what is pinned, or has pinned blocks behind it, is not up for eviction  (every step)
//   I-10 blocks of one tenant and rank are never read by another                 (every read)
//   I-12 rows, slots and requests belong together                                (every row)
//   I-14 a block in use by a step in flight is not handed over                   (every hand-over)
//   I-17 somebody can always go on                                               (every step)
//   I-18 the highest-priority sequence is not passed over; preemptions are bounded    (every step)
//   I-19 every request ends once, and nothing comes after                        (every output)
//   I-21 a follower waits for blocks that its leader is about to publish         (every step)
//   I-21 nobody computes what one that runs is about to publish           (every new admission)
//   I-22 no step begins in a pause                                               (every launch)
//   I-23 no more steps are in flight than may be                                 (every launch)
//   I-24 the ranks of a group make the same plans and end together               (every turn)
//   I-25 what has come back is delivered before the driver waits                 (every turn)
//   I-26 a driver ends when it was told to and nothing is in flight, not before  (at the end)
//   I-20 tokens, log-probabilities and reused counts are the oracle's            (at the end)
#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"
#include "sim/simulated_engine.h"
#include "sim/workload.h"

namespace braid {

struct SimulationStats {
  // Hash of all plans and outputs: equal seeds give equal traces. Of several seeds the sum, so that
  // it does not depend on which process ran which.
  uint64_t trace = 0;
  int64_t requests = 0;
  int64_t steps = 0, rows = 0, tokens = 0;
  int64_t preemptions = 0, protected_requests = 0, aborted = 0, failed = 0, refused = 0,
          stopped = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0;  // of requests at their first admission
  std::array<int64_t, kReuseStops> reuse_stops{};
  int64_t evictions_full = 0, evictions_state = 0;
  int64_t drafts = 0, drafts_accepted = 0;        // drafts in rows
  int64_t moves = 0, moves_failed = 0;            // of requests' pages, to or from elsewhere
  int64_t parts_stored = 0, tokens_restored = 0;  // by the tier below the arena
  int64_t late_tokens = 0;                        // sampled for requests that had ended
  // Requests by the steps between submission and first output: [0] none, [n] less than 2^n.
  std::array<int64_t, 24> waits{};
  int64_t wait_max = 0;

  void Add(const SimulationStats& other);
  // The number of steps within which a share of the requests had their first output; a power of
  // two.
  int64_t WaitQuantile(double share) const;
};

// The workload alone: at the end the prefix cache is flushed and must leave nothing behind.
Result<SimulationStats> RunSeed(uint64_t seed, const WorkloadOptions& options = {});
Result<SimulationStats> RunWorkload(const Workload& workload);
// The same on an engine that was made for a workload of the same figures; what the prefix cache
// holds stays.
Result<SimulationStats> RunWave(const Workload& workload, SimulatedEngine& engine);

}  // namespace braid
