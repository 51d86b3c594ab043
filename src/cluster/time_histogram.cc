// A bucket's number is the logarithm of its time.
#include "cluster/time_histogram.h"

#include <algorithm>
#include <cmath>

namespace braid {

void TimeHistogram::Add(double seconds, int64_t count) {
  const double place = std::log(std::max(seconds, kLeast) / kLeast) / std::log(kGrowth);
  const auto bucket = static_cast<size_t>(place);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  buckets_[bucket] += count;
  sum_ += seconds * static_cast<double>(count);
  count_ += count;
}

double TimeHistogram::Quantile(double q) const {
  const double wanted = q * static_cast<double>(count_);
  int64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen > 0 && static_cast<double>(seen) >= wanted) {
      return kLeast * std::pow(kGrowth, static_cast<double>(i) + 0.5);
    }
  }
  return 0;
}

}  // namespace braid
