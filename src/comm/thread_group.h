// A group whose ranks are threads of this process.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace braid {

// How long a rank that waits looks for the others before it sleeps: some 20 us, or as long as a
// member of a pool, which pays where every rank has a core of its own.
enum class Spin { kBrief, kLong };

class ThreadGroup {
 public:
  ThreadGroup(int32_t size, std::chrono::milliseconds deadline, Spin spin = Spin::kBrief);
  ~ThreadGroup();

  // Used by one thread at a time; lives as long as the group.
  Communicator& rank(int32_t rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
