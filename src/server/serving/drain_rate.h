// Measures how fast requests finish, for Retry-After. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

namespace braid {

class DrainRate {
 public:
  // Records the end of a request. Times are MonotonicUs and do not decrease.
  void Ended(int64_t now_us);
  // Whole seconds, 1 to 60, until a place should be free when `ahead` requests wait, at the recent
  // rate; 1 if fewer than two ends are known.
  int32_t SecondsFor(int64_t ahead, int64_t now_us) const;

 private:
  static constexpr size_t kEnds = 64;
  mutable std::mutex mutex_;
  std::array<int64_t, kEnds> ends_us_{};  // a ring
  size_t count_ = 0;                      // of all ends
};

}  // namespace braid
