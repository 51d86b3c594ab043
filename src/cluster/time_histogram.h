// How long things took, in buckets that grow by a fixed ratio, so that a simulation of millions of
// requests keeps quantiles in little memory. One thread.
#pragma once

#include <cstdint>
#include <vector>

namespace braid {

// Counts in buckets of 2 % width: quantiles are exact to that.
class TimeHistogram {
 public:
  void Add(double seconds, int64_t count = 1);
  double Quantile(double q) const;  // 0 if empty
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  int64_t count() const { return count_; }

 private:
  static constexpr double kLeast = 1e-6, kGrowth = 1.02;
  std::vector<int64_t> buckets_;
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace braid
