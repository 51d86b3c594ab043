// Small statistics for reports; pure.
#pragma once

#include <cstdint>
#include <vector>

namespace braid {

// The p-th percentile, p in [0, 100], linear between neighbours; 0 of nothing.
double Percentile(std::vector<double> values, double p);
double Median(std::vector<double> values);
double Mean(const std::vector<double>& values);

struct Interval {
  double low = 0;
  double high = 1;
};

// Wilson's 95 % interval of a share of `right` in `n`; [0, 1] when n is 0.
Interval WilsonInterval(int64_t right, int64_t n);

}  // namespace braid
