// A token bucket: a rate per second with a burst. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid {

class RateBucket {
 public:
  // Full at first. Times are MonotonicUs and do not go back.
  RateBucket(double per_second, double most, int64_t now_us)
      : per_second_(per_second), most_(most), level_(most), at_us_(now_us) {}

  // True if `amount` may be taken now; more than the capacity needs a full bucket.
  bool Has(double amount, int64_t now_us) {
    Refill(now_us);
    return level_ >= std::min(amount, most_);
  }
  // The level may become negative; later requests wait until it is repaid.
  void Take(double amount, int64_t now_us) {
    Refill(now_us);
    level_ -= amount;
  }
  // Whole seconds until Has is true, at least 1.
  int32_t SecondsUntil(double amount, int64_t now_us) {
    Refill(now_us);
    const double missing = std::max(0.0, std::min(amount, most_) - level_);
    return 1 + static_cast<int32_t>(std::min(missing / per_second_, 86400.0));
  }
  bool full(int64_t now_us) {
    Refill(now_us);
    return level_ >= most_;
  }

 private:
  void Refill(int64_t now_us) {
    const double seconds = static_cast<double>(std::max<int64_t>(now_us - at_us_, 0)) / 1e6;
    at_us_ = std::max(at_us_, now_us);
    level_ = std::min(most_, level_ + seconds * per_second_);
  }

  double per_second_, most_, level_;
  int64_t at_us_;
};

}  // namespace braid
