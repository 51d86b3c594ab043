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
  EXPECT_DOUBLE_EQ(Mean({1, 2, 6}), 3);
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
  EXPECT_EQ(WilsonInterval(0, 0).high, 1.0);
}

}  // namespace
}  // namespace braid
