// Threads of which one computes at a time, while others wait for messages. A thread has the turn
// from Take to Give; the calls of a group that GivingTurns returns give it while they wait. So two
// halves of a batch share a rank's compute threads, and neither waits for a message while the other
// has something to do.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "comm/communicator.h"

namespace braid {

class Turns {
 public:
  void Take();
  void Give();

  // A number that only grows between two resets. Await gives the turn until it is at least `value`.
  void Reset();
  void Reach(int64_t value);
  void Await(int64_t value);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;
  int64_t reached_ = 0;
};

// The group, for calls of threads that have the turn. Both outlive it.
std::unique_ptr<Communicator> GivingTurns(Communicator& group, Turns& turns);

}  // namespace braid
