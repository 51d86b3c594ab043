// Reads what engines publish of their prefixes (publisher.h, or other programs in its format): a
// SUB socket for each, and a DEALER socket that asks for missed batches. One thread for all.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "kv_events/batch.h"

namespace braid::kv {

struct EventSource {
  std::string events;  // tcp://HOST:PORT
  std::string replay;  // tcp://HOST:PORT; empty: missed batches cannot be asked for
  bool operator==(const EventSource&) const = default;
};

class Subscriber {
 public:
  // Gets the batches of a source in their order, on the subscriber's thread. A batch of rank -1
  // concerns all ranks.
  using Take = std::function<void(int32_t source, EventBatch batch)>;

  // kUnavailable without libzmq.
  static Result<std::unique_ptr<Subscriber>> Start(Take take);
  ~Subscriber();

  // Any thread. A source that cannot be connected to is logged and left out. Its number is that of
  // no other source, unless that was removed before.
  void Add(int32_t source, EventSource at);
  // The last batch of the source forgets all that was said of it: others may be on their way to the
  // caller, behind what the caller does now.
  void Remove(int32_t source);

 private:
  struct State;
  explicit Subscriber(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid::kv
