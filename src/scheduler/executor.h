// The outside world of one step: runtime/ runs the model, sim/ runs the hash LM.
#pragma once

#include <vector>

#include "scheduler/event.h"
#include "scheduler/plan.h"

namespace braid {

struct Executor {
  virtual ~Executor() = default;
  // Ranks agree on the step's inputs; the identity when alone.
  virtual std::vector<Event> Exchange(std::vector<Event> local) = 0;
  // Starts a step. At most `overlap depth + 1` steps are in flight, and they finish in order.
  virtual void Launch(Plan plan) = 0;
  // Blocks until the oldest step in flight is done.
  virtual StepDone Wait() = 0;
};

}  // namespace braid
