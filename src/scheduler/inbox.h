// Where everything that happens waits for the engine thread, in the order in which it came. Any
// thread posts; one takes.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "scheduler/event.h"

namespace braid {

class Inbox final : public EventSink {
 public:
  void Post(Event event) override;
  // Everything that is there.
  std::vector<Event> Take();
  // Returns when something is there, or after so many microseconds.
  void Wait(int64_t most_us);
  // For who runs an executor without a driver: waits for the next event, which is a step's end.
  StepDone AwaitStep();

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Event> events_;
};

}  // namespace braid
