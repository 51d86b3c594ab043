// Retry-After is the time that the queue really takes.
#include "server/serving/drain_rate.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

constexpr int64_t kSecond = 1'000'000;

TEST(DrainRate, IsTheTimeThatTheQueueTakes) {
  DrainRate rate;
  EXPECT_EQ(rate.SecondsFor(100, 0), 1) << "nothing is known";
  for (int64_t i = 0; i <= 10; ++i) rate.Ended(i * kSecond / 2);
  EXPECT_EQ(rate.SecondsFor(0, 5 * kSecond), 1);
  EXPECT_EQ(rate.SecondsFor(9, 5 * kSecond), 5);
  EXPECT_EQ(rate.SecondsFor(1'000'000, 5 * kSecond), 60);
}

TEST(DrainRate, ForgetsWhatIsLongAgoAndSlowsWhenNothingEnds) {
  DrainRate rate;
  for (int64_t i = 0; i < 100; ++i) rate.Ended(i * 10 * kSecond);
  for (int64_t i = 1; i <= 64; ++i) rate.Ended(1000 * kSecond + i * kSecond / 10);
  const int64_t end_us = 1000 * kSecond + 64 * kSecond / 10;
  EXPECT_EQ(rate.SecondsFor(19, end_us), 2);
  EXPECT_GT(rate.SecondsFor(19, end_us + 20 * kSecond), 5);
}

}  // namespace
}  // namespace braid
