// The level over time, at its bounds.
#include "server/access/rate_bucket.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

constexpr int64_t kSecond = 1'000'000;

TEST(RateBucket, IsFullAtFirstAndRefillsAtItsRateUpToItsSize) {
  RateBucket bucket(2, 10, 0);
  EXPECT_TRUE(bucket.full(0));
  bucket.Take(10, 0);
  EXPECT_FALSE(bucket.Has(1, 0));
  EXPECT_FALSE(bucket.Has(2, kSecond - 1));
  EXPECT_TRUE(bucket.Has(2, kSecond));
  EXPECT_FALSE(bucket.full(5 * kSecond - 1));
  EXPECT_TRUE(bucket.full(5 * kSecond));
  bucket.Take(10, 100 * kSecond);
  EXPECT_FALSE(bucket.Has(1, 100 * kSecond)) << "it never held more than 10";
}

TEST(RateBucket, MoreThanItsSizeNeedsAFullOne) {
  RateBucket bucket(1, 10, 0);
  EXPECT_TRUE(bucket.Has(1000, 0));
  bucket.Take(1, 0);
  EXPECT_FALSE(bucket.Has(1000, 0));
  EXPECT_EQ(bucket.SecondsUntil(1000, 0), 2);
}

TEST(RateBucket, ADebtIsPaidFirst) {
  RateBucket bucket(1, 10, 0);
  bucket.Take(30, 0);
  EXPECT_EQ(bucket.SecondsUntil(5, 0), 26);
  EXPECT_FALSE(bucket.Has(5, 24 * kSecond));
  EXPECT_TRUE(bucket.Has(5, 25 * kSecond + 1));
}

TEST(RateBucket, TheWaitIsAtLeastOneSecondAndAtMostADay) {
  RateBucket bucket(1, 10, 0);
  EXPECT_EQ(bucket.SecondsUntil(1, 0), 1);
  bucket.Take(1e9, 0);
  EXPECT_EQ(bucket.SecondsUntil(1, 0), 86401);
}

TEST(RateBucket, AClockThatGoesBackGivesNothing) {
  RateBucket bucket(1, 10, 10 * kSecond);
  bucket.Take(10, 10 * kSecond);
  EXPECT_FALSE(bucket.Has(1, 5 * kSecond));
  EXPECT_FALSE(bucket.Has(1, 11 * kSecond - 1)) << "the time before does not count twice";
  EXPECT_TRUE(bucket.Has(1, 11 * kSecond));
}

}  // namespace
}  // namespace braid
