// Percentiles and Wilson's interval against values worked out by hand.
#include "cli/bench/statistics.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Statistics, PercentilesAreLinearBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(Percentile({3, 1, 2}, 50), 2);
  EXPECT_DOUBLE_EQ(Percentile({1, 2}, 50), 1.5);
  EXPECT_DOUBLE_EQ(Percentile({0, 10}, 99), 9.9);
  EXPECT_DOUBLE_EQ(Percentile({4}, 99), 4);
  EXPECT_DOUBLE_EQ(Percentile({}, 50), 0);
  EXPECT_DOUBLE_EQ(Percentile({5, 1, 9}, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile({5, 1, 9}, 100), 9);
  EXPECT_DOUBLE_EQ(Percentile({10, 20, 30, 40}, 75), 32.5);
  EXPECT_DOUBLE_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(Mean({1, 2, 6}), 3);
  EXPECT_EQ(Mean({}), 0);
}

TEST(Statistics, WilsonIntervalMatchesPublishedValues) {
  // 81 of 263 (Newcombe 1998, method 3): 0.2553 to 0.3662.
  const Interval interval = WilsonInterval(81, 263);
  EXPECT_NEAR(interval.low, 0.2553, 5e-5);
  EXPECT_NEAR(interval.high, 0.3662, 5e-5);
}

TEST(Statistics, WilsonIntervalStaysInsideZeroAndOne) {
  EXPECT_NEAR(WilsonInterval(10, 10).high, 1.0, 1e-12);
  EXPECT_NEAR(WilsonInterval(10, 10).low, 0.7225, 1e-4);
  EXPECT_EQ(WilsonInterval(0, 10).low, 0.0);
  EXPECT_NEAR(WilsonInterval(0, 10).high, 0.2775, 1e-4);
  EXPECT_EQ(WilsonInterval(0, 0).low, 0.0);
  EXPECT_EQ(WilsonInterval(0, 0).high, 1.0);
}

const std::vector<std::vector<int64_t>> kTimes = {{100, 110, 110, 120}, {100, 110, 120, 130, 140}};

TEST(TokenRates, TokensAfterTheFirstCountOverTheirTime) {
  const TokenRates rates = RatesOf(kTimes, false);
  EXPECT_DOUBLE_EQ(rates.tokens_per_second, 7e6 / 60);
  EXPECT_DOUBLE_EQ(rates.tokens_per_step, 7.0 / 6);
}

TEST(TokenRates, SequencesThatRunTogetherCountUntilOneEnds) {
  const TokenRates rates = RatesOf(kTimes, true);
  EXPECT_DOUBLE_EQ(rates.tokens_per_second, 5e6 / 40);
  EXPECT_DOUBLE_EQ(rates.tokens_per_step, 5.0 / 4);
}

TEST(TokenSeconds, AllSequencesRunWhileTheirTokensCount) {
  const std::vector<std::vector<int64_t>> one = {{100, 110, 130, 160}};
  EXPECT_DOUBLE_EQ(TokenSecondsOf(one, 3), 15e-6);
  EXPECT_DOUBLE_EQ(TokenSecondsOf(one, 99), 20e-6) << "it has four tokens";
  // The second sequence begins last, and the first one ends before its third token.
  const std::vector<std::vector<int64_t>> two = {{100, 112, 124, 130}, {115, 125, 131, 180}};
  EXPECT_DOUBLE_EQ(TokenSecondsOf(two, 4), 10e-6);
  const std::vector<std::vector<int64_t>> longer = {{115, 125, 131, 180}, {100, 121, 131}};
  EXPECT_DOUBLE_EQ(TokenSecondsOf(longer, 4), 8e-6);
  const std::vector<std::vector<int64_t>> ended = {{100, 110}, {120, 127, 139}};
  EXPECT_DOUBLE_EQ(TokenSecondsOf(ended, 3), 7e-6) << "one gap counts in any case";
}

// Two sequences without drafts and one whose drafts are all right, in steps of 12 us.
TEST(TokenSeconds, OfAllSequencesNotOfTheOneThatBeganLast) {
  std::vector<std::vector<int64_t>> times(3);
  for (int64_t step = 0; step < 10; ++step) {
    times[0].push_back(12 * step);
    times[1].push_back(12 * step);
    for (int i = 0; step > 0 && i < 4; ++i) times[2].push_back(1 + 12 * step);
  }
  EXPECT_NEAR(TokenSecondsOf(times, 1000), 12e-6 / 2, 1e-6);
  std::swap(times[0], times[2]);
  EXPECT_NEAR(TokenSecondsOf(times, 1000), 12e-6 / 2, 1e-6);
}

TEST(TokenRates, OneTokenHasNoRate) {
  const std::vector<std::vector<int64_t>> one = {{100}, {}};
  EXPECT_EQ(RatesOf(one, true).tokens_per_second, 0);
  EXPECT_EQ(RatesOf(one, false).tokens_per_step, 1);
}

}  // namespace
}  // namespace braid
