// A group whose ranks are threads of this process.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace braid {

class ThreadGroup {
 public:
  ThreadGroup(int32_t size, std::chrono::milliseconds deadline);
  ~ThreadGroup();

  // Used by one thread at a time; lives as long as the group.
  Communicator& rank(int32_t rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
