// Small statistics for reports; pure.
#pragma once

#include <cstdint>
#include <span>
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

// How fast sequences got their tokens.
struct TokenRates {
  double tokens_per_second = 0;  // of a sequence from its first token on, the mean over all
  double tokens_per_step = 1;    // that a sequence got at the same time
};
// From when tokens came, in microseconds, a list for each sequence. `together`: all began at once,
// and they count until the first of them ends, for steps of fewer sequences are faster.
TokenRates RatesOf(std::span<const std::vector<int64_t>> token_us, bool together);

// The mean time in which a sequence gets one token more, over all sequences: without drafts, of a
// step. From the last first token on, while all of them run, at most until that sequence has
// `tokens`. Each sequence has at least two.
double TokenSecondsOf(std::span<const std::vector<int64_t>> token_us, int64_t tokens);

}  // namespace braid
