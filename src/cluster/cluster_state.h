// What happens in a simulated cluster, and what its requests and engines are in the middle of.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "scheduler/scheduler.h"

namespace braid {

// A simulation ends with an error beyond so much of its own time: what is planned so late does not
// overflow nanoseconds. And beyond so many moments, which take 400 MB.
inline constexpr double kClusterSecondsMax = 1e9;
inline constexpr double kClusterMomentsMax = 1 << 23;
inline Status CheckTime(int64_t now_ns, double moment_seconds, int64_t open_requests) {
  const double most = std::min(kClusterSecondsMax, moment_seconds * kClusterMomentsMax);
  if (static_cast<double>(now_ns) * 1e-9 <= most) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("{} requests have not ended after {:g} s, the longest time that is "
                           "simulated of such a load: --repair and --start-seconds must be "
                           "shorter, or requests come for longer (--minutes)",
                           open_requests, most)};
}

struct Happening {
  enum Kind : uint8_t { kArrival, kStepEnd, kTransferEnd, kFailure, kRepair, kScale };
  int64_t at_ns = 0;
  int64_t number = 0;  // of equals the one that was added first
  Kind kind = kArrival;
  int32_t which = 0;  // request or engine
  // Of the engine, or which attempt of the request: what a dead one had planned does not happen.
  int64_t life = 0;
  bool operator>(const Happening& o) const {
    return std::pair(at_ns, number) > std::pair(o.at_ns, o.number);
  }
};

// A request.
struct Live {
  int32_t engine = -1;
  int32_t prefill =
      -1;  // the engine that computes the prompt for it; -1: the same, or none any more
  bool prefill_lost = false;
  int64_t attempt = 0;
  std::optional<MoveId> sends, receives;  // moves that have begun on either side
  int64_t move_bytes = 0;                 // of each device
  int64_t arrived_ns = 0, last_ns = -1;
  int64_t backlog = 0;   // of the prompt's tokens, that the router counts until the first token
  int32_t output = 0;    // tokens
  int32_t restarts = 0;  // after failures
};

struct ClusterEngine {
  std::optional<Scheduler> scheduler;  // none: it has failed, starts or is off
  bool off = false, leaving = false;   // by autoscaling
  int64_t on_ns = 0, paid_ns = 0;      // since when it runs or starts; of earlier times
  Plan plan;                           // in flight
  bool running = false;
  int64_t life = 0, busy_ns = 0, step_ns = 0, ends_ns = 0;  // the last two: of the step in flight
  size_t window = 0;                                        // of ClusterOptions::balances
  int64_t window_steps = 0;                                 // of the window, so far
  std::vector<int32_t> requests;                            // that it has
  int64_t backlog = 0;                                      // of them, of prompts
};

}  // namespace braid
