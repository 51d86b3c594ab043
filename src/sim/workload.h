// What one seed means: an arena, a scheduler's figures, requests with their arrival steps, and
// faults. Each feature and each fault is off in half of the seeds, so that rare combinations come
// up. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
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
  int32_t lost_step_one_in = 0;  // 0: no step is lost; all rows of one that is fail
  uint64_t error_seed = 0;
  int32_t drafts_right = 0;       // of 100 drafts
  int32_t move_error_one_in = 0;  //     0: no move fails
  int32_t drop_one_in = 0;        // turns in which the tier drops a part; 0: it does not
  int64_t flush_step = -1;        // turn in which the prefix cache is flushed, -1: never
  int32_t ranks = 1;              // 2: a group of two, which do the same
  bool slow = false;              // a step may take several turns
  int64_t pause_step = -1, resume_step = -1;  // turns in which a pause begins and ends
  int64_t stop_step = -1;                     // turn in which the engine is told to stop
  bool stop_now = false;
  int64_t lost_step = -1;                 // turn in which a group's ranks lose each other
  std::vector<ArrivingRequest> requests;  // by step
};

// Where the requests come from.
enum class WorkloadKind : uint8_t {
  kMixed,     // any of the following
  kRandom,    // prompts that share nothing
  kShared,    // prompts that go on from earlier ones, cut anywhere
  kAgentic,   // conversations: each turn is the last one, its answer and something new
  kBranches,  // one trunk, left at a few places again and again
  kFloods,    // one tenant submits everything at once, others come one by one
  kLengths,   // lengths at and beside every limit
  kChoices,   // prompts that come several times at once, some of them cut or continued
  kCount,
};

enum class Fault : uint8_t {
  kAbort,     // requests are aborted at any moment
  kRowError,  // single rows fail
  kLostStep,  // all rows of a step fail
  kLate,      // steps run when they are waited for, not when they are launched
  kTiny,      // arenas with barely room for one request
  kFlush,     // the prefix cache is flushed in the middle
  kMove,      // pages that should arrive, or be sent, do not
  kSlow,      // steps take several turns
  kPause,     // the engine pauses for a while
  kStop,      // the engine is told to stop in the middle
  kLostRank,  // the ranks of a group lose each other
  kCount,
};

using FaultMask = uint32_t;
inline constexpr FaultMask kAllFaults = (1u << static_cast<uint32_t>(Fault::kCount)) - 1;
constexpr FaultMask MaskOf(Fault fault) { return 1u << static_cast<uint32_t>(fault); }

// "agentic", "lost-step": as on the command line.
const char* NameOf(WorkloadKind kind);
const char* NameOf(Fault fault);

struct WorkloadOptions {
  WorkloadKind kind = WorkloadKind::kMixed;
  FaultMask faults = kAllFaults;  // those that may come up
  std::optional<int32_t> overlap_depth;
  bool prefix_cache = true;
  bool drafts = true;   // rows may carry drafts
  bool tier = true;     // pages that rest may go to a tier and come back
  bool handoff = true;  // prompts may come from, or go to, other engines
  bool group = true;    // two ranks may do the same
  std::optional<Placement> placement;
  // What a failing run is shrunk by.
  std::vector<int32_t> only;      // numbers of the requests that stay; empty: all
  int32_t prompt_tokens_max = 0;  // longer prompts are cut; 0: none is
  int32_t output_tokens_max = 0;
};

Workload MakeWorkload(uint64_t seed, const WorkloadOptions& options = {});
// More requests for an engine that lives on: as MakeWorkload, for the first one's figures and
// faults. Request ids start at `first_id`.
Workload MakeWave(uint64_t seed, const Workload& first, int64_t first_id,
                  const WorkloadOptions& options = {});

}  // namespace braid
