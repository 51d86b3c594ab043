// Keeps requests away from an engine whose connections fail although it says that it is ready.
// After a few failures in a row it opens: no request goes there for a while, then one as a trial;
// the while doubles with each trial that fails. Pure: times are passed in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace braid {

class Breaker {
 public:
  static constexpr int32_t kFailures = 3;
  static constexpr int64_t kFirstUs = 1'000'000, kMostUs = 30'000'000;

  bool closed() const { return pause_us_ == 0; }
  bool Allows(int64_t now_us) const { return closed() || (now_us >= until_us_ && !trial_); }
  // A request goes there.
  void Begin() { trial_ = !closed(); }
  // It ended in a way that says nothing about the engine.
  void Withdraw() { trial_ = false; }
  void Succeeded() { *this = {}; }
  void Failed(int64_t now_us) {
    const bool was_trial = std::exchange(trial_, false);
    ++failures_;
    // Many that began before it opened may fail together, and are one reason to wait.
    if (closed() ? failures_ < kFailures : !was_trial) return;
    pause_us_ = closed() ? kFirstUs : std::min(2 * pause_us_, kMostUs);
    until_us_ = now_us + pause_us_;
  }

 private:
  int32_t failures_ = 0;  // in a row
  int64_t pause_us_ = 0;  // 0: closed
  int64_t until_us_ = 0;
  bool trial_ = false;  // one request is on trial
};

}  // namespace braid
