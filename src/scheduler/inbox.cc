// See the header.
#include "scheduler/inbox.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace braid {

void Inbox::Post(Event event) {
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  wake_.notify_one();
}

std::vector<Event> Inbox::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void Inbox::Wait(int64_t most_us) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, std::chrono::microseconds(most_us), [this] { return !events_.empty(); });
}

StepDone Inbox::AwaitStep() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return !events_.empty(); });
  StepDone* done = std::get_if<StepDone>(&events_.front());
  CHECK(done != nullptr, "something else than a step has ended");
  StepDone step = std::move(*done);
  events_.erase(events_.begin());
  return step;
}

}  // namespace braid
