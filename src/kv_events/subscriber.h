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

  // Any thread. The first batch of a source forgets all that was said of its number before. A
  // source that cannot be connected to is logged and left out.
  void Add(int32_t source, EventSource at);
  void Remove(int32_t source);

 private:
  struct State;
  explicit Subscriber(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid::kv
