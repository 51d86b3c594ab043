// A group whose ranks are threads of this process. Several groups may end together: what ends one
// is an error of all of them, as it is where ranks are processes.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/communicator.h"

namespace braid {

// How long a rank that waits looks for the others before it sleeps: some 20 us, in which it leaves
// its core to who can use it, or as long as a member of a pool, which pays where every rank has a
// core of its own.
enum class Spin { kBrief, kLong };

// Why the groups that share it have ended. Any thread.
class GroupEnd {
 public:
  bool ended() const { return ended_.load(); }
  // The first error, which is everybody's; this one, if there was none.
  Error End(Error why);

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> ended_{false};
};

// Where a group belongs.
struct AmongGroups {
  int32_t first = 0;        // what errors call its first rank
  GroupEnd* end = nullptr;  // shared with other groups, and outlives them; null: its own
};

class ThreadGroup {
 public:
  ThreadGroup(int32_t size, std::chrono::milliseconds deadline, Spin spin = Spin::kBrief,
              const AmongGroups& among = {});
  ~ThreadGroup();

  // Used by one thread at a time; lives as long as the group.
  Communicator& rank(int32_t rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
