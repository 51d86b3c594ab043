// A map under a mutex that is held for the length of a look-up.
#include "server/running_board.h"

#include <utility>

namespace braid {

void RunningBoard::Add(const std::string& id, std::atomic<bool>* ended, Wake wake) {
  std::lock_guard lock(mutex_);
  entries_.emplace(id, Entry{ended, std::move(wake)});
}

void RunningBoard::Remove(const std::atomic<bool>* ended) {
  std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.ended == ended; });
}

int64_t RunningBoard::End(const std::string& id) {
  std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (auto& [name, entry] : entries_) {
    if (!id.empty() && name != id) continue;
    if (!entry.ended->exchange(true)) ++count;
    entry.wake();
  }
  return count;
}

}  // namespace braid
