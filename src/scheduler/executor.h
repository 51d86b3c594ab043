// The outside world of one step: runtime/ runs the model, sim/ runs the hash LM.
#pragma once

#include <vector>

#include "base/result.h"
#include "scheduler/event.h"
#include "scheduler/plan.h"

namespace braid {

// Engine thread, except that steps may run and end on another.
struct Executor {
  virtual ~Executor() = default;
  // What happened here since the last call becomes what happened to all ranks, in one order: the
  // identity when alone. In a group everybody gets the leader's events. The leader calls at least
  // once per kHeartbeat, also with nothing; a follower calls at once and waits in here for the
  // leader. Of its own StepDone a follower learns only that its step is over: the one that counts,
  // with the time it took, is the leader's. An error ends the run: the group is lost.
  virtual Result<std::vector<Event>> Exchange(std::vector<Event> local) { return local; }
  virtual bool follows() const { return false; }
  // Starts a step. Its StepDone is posted to `events`, from any thread and perhaps before this
  // returns. At most `overlap depth + 1` steps are in flight, and they end in order.
  virtual void Launch(Plan plan, EventSink& events) = 0;
};

}  // namespace braid
