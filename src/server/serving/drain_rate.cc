// The mean time between the ends in the ring. The time since the last one counts too, so that the
// rate of an idle server falls.
#include "server/serving/drain_rate.h"

#include <algorithm>
#include <cmath>

namespace braid {

void DrainRate::Ended(int64_t now_us) {
  std::lock_guard lock(mutex_);
  ends_us_[count_++ % kEnds] = now_us;
}

int32_t DrainRate::SecondsFor(int64_t ahead, int64_t now_us) const {
  std::lock_guard lock(mutex_);
  constexpr double kMost = 60;
  if (count_ < 2) return 1;
  const size_t known = std::min(count_, kEnds);
  const int64_t first_us = ends_us_[(count_ - known) % kEnds];
  const double gap_us = static_cast<double>(now_us - first_us) / static_cast<double>(known - 1);
  const double seconds = std::ceil(gap_us * static_cast<double>(ahead + 1) * 1e-6);
  return static_cast<int32_t>(std::clamp(seconds, 1.0, kMost));
}

}  // namespace braid
