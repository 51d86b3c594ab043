// Keeps requests away from an engine whose connections fail although it says that it is ready.
// After a few failures in a row it opens: no request goes there for a while, then one as a trial;
// the while doubles with each trial that fails. While it is open only trials count: others began
// before. A trial that takes long is followed by another. Pure: times are passed in.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid {

class Breaker {
 public:
  static constexpr int32_t kFailures = 3;
  static constexpr int64_t kFirstUs = 1'000'000, kMostUs = 30'000'000;
  // Which trial a request is.
  using Trial = int64_t;
  static constexpr Trial kNone = 0;

  bool closed() const { return pause_us_ == 0; }
  bool Allows(int64_t now_us) const { return closed() || now_us >= until_us_; }
  // A request goes there. The next one may after a pause, however long this one takes.
  Trial Begin(int64_t now_us) {
    if (closed()) return kNone;
    until_us_ = now_us + pause_us_;
    return until_us_;
  }
  // It ended in a way that says nothing about the engine.
  void Withdraw(Trial trial, int64_t now_us) {
    if (trial != kNone && trial == until_us_) until_us_ = now_us;
  }
  void Succeeded(Trial trial) {
    if (closed() || trial != kNone) *this = {};
  }
  void Failed(Trial trial, int64_t now_us) {
    if (closed()) {
      if (++failures_ < kFailures) return;
      pause_us_ = kFirstUs;
    } else if (trial != kNone) {
      pause_us_ = std::min(2 * pause_us_, kMostUs);
    } else {
      return;
    }
    until_us_ = now_us + pause_us_;
  }

 private:
  int32_t failures_ = 0;  // in a row
  int64_t pause_us_ = 0;  // 0: closed
  int64_t until_us_ = 0;
};

}  // namespace braid
