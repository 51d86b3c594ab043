// How fast requests leave, measured: what Retry-After is made of. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

namespace braid {

class DrainRate {
 public:
  // A request has ended. Times are MonotonicUs and do not go back.
  void Ended(int64_t now_us);
  // After how many whole seconds, 1 to 60, a place should be free when `ahead` requests wait, at
  // the rate of the last ends; 1 if fewer than two are known.
  int32_t SecondsFor(int64_t ahead, int64_t now_us) const;

 private:
  static constexpr size_t kEnds = 64;
  mutable std::mutex mutex_;
  std::array<int64_t, kEnds> ends_us_{};  // a ring
  size_t count_ = 0;                      // of all ends
};

}  // namespace braid
