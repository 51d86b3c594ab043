// Percentiles and intervals.
#include "cli/bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace braid {

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = p / 100.0 * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

double Median(std::vector<double> values) { return Percentile(std::move(values), 50); }

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Interval WilsonInterval(int64_t right, int64_t n) {
  if (n == 0) return {};
  constexpr double kZ = 1.959963984540054;
  const double count = static_cast<double>(n);
  const double share = static_cast<double>(right) / count;
  const double scale = 1 + kZ * kZ / count;
  const double centre = (share + kZ * kZ / (2 * count)) / scale;
  const double half =
      kZ / scale * std::sqrt(share * (1 - share) / count + kZ * kZ / (4 * count * count));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

TokenRates RatesOf(std::span<const std::vector<int64_t>> token_us, bool together) {
  int64_t end_us = INT64_MAX;
  for (const std::vector<int64_t>& times : token_us) {
    if (together && !times.empty()) end_us = std::min(end_us, times.back());
  }
  int64_t tokens = 0, steps = 0, us = 0;
  for (const std::vector<int64_t>& times : token_us) {
    for (size_t i = 1; i < times.size() && times[i] <= end_us; ++i) {
      ++tokens;
      steps += times[i] != times[i - 1] ? 1 : 0;
      us += times[i] - times[i - 1];
    }
  }
  TokenRates rates;
  if (us > 0) rates.tokens_per_second = static_cast<double>(tokens) * 1e6 / static_cast<double>(us);
  if (steps > 0) rates.tokens_per_step = static_cast<double>(tokens) / static_cast<double>(steps);
  return rates;
}

double TokenSecondsOf(std::span<const std::vector<int64_t>> token_us, int64_t tokens) {
  const std::vector<int64_t>* last = &token_us.front();
  int64_t first_end_us = last->back();
  for (const std::vector<int64_t>& times : token_us) {
    if (times.front() > last->front()) last = &times;
    first_end_us = std::min(first_end_us, times.back());
  }
  int64_t gaps = std::min(tokens, std::ssize(*last)) - 1;
  while (gaps > 1 && (*last)[static_cast<size_t>(gaps)] > first_end_us) --gaps;
  const int64_t begin_us = last->front(), end_us = (*last)[static_cast<size_t>(gaps)];
  const auto seconds = static_cast<double>(end_us - begin_us) * 1e-6;
  if (end_us > first_end_us) return seconds / static_cast<double>(gaps);  // one ended before
  int64_t came = 0;
  for (const std::vector<int64_t>& times : token_us) {
    came += std::count_if(times.begin(), times.end(),
                          [&](int64_t us) { return begin_us < us && us <= end_us; });
  }
  return seconds * static_cast<double>(token_us.size()) / static_cast<double>(came);
}

}  // namespace braid
