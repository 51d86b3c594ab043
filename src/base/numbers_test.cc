// Small arithmetic, sizes as text, and random numbers.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>

#include "base/math.h"
#include "base/quantities.h"
#include "base/rng.h"

namespace braid {
namespace {

TEST(Math, DivisionAndRoundingGoUpToTheNextWholeOne) {
  EXPECT_EQ(CeilDiv(0, 4), 0);
  EXPECT_EQ(CeilDiv(1, 4), 1);
  EXPECT_EQ(CeilDiv(4, 4), 1);
  EXPECT_EQ(CeilDiv(5, 4), 2);
  EXPECT_EQ(RoundUp(5, 4), 8);
  EXPECT_EQ(RoundUp(8, 4), 8);
  EXPECT_EQ(RoundUp(0, 64), 0);
}

TEST(Math, CheckedSumsAndProductsAreNothingPast63Bits) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(CheckedMul(kMost / 2, 2), kMost - 1);
  EXPECT_EQ(CheckedMul(kMost / 2 + 1, 2), std::nullopt);
  EXPECT_EQ(CheckedMul(-3, 4), -12);
  EXPECT_EQ(CheckedAdd(kMost - 1, 1), kMost);
  EXPECT_EQ(CheckedAdd(kMost, 1), std::nullopt);
  EXPECT_EQ(CheckedAdd(-kMost, -2), std::nullopt);
}

TEST(Quantities, HaveThreeDigitsAndTheLargestUnitThatFits) {
  EXPECT_EQ(ByteText(0), "0 B");
  EXPECT_EQ(ByteText(1023), "1023 B");
  EXPECT_EQ(ByteText(1024), "1.00 KiB");
  EXPECT_EQ(ByteText(10 * 1024), "10.0 KiB");
  EXPECT_EQ(ByteText(int64_t{100} << 20), "100 MiB");
  EXPECT_EQ(ByteText((int64_t{1} << 30) * 15 / 2), "7.50 GiB");
  EXPECT_EQ(ByteText(int64_t{5000} << 40), "5000 TiB");
  EXPECT_EQ(CountText(812), "812");
  EXPECT_EQ(CountText(1000), "1.00 K");
  EXPECT_EQ(CountText(11'600'000), "11.6 M");
  EXPECT_EQ(CountText(4'030'000'000), "4.03 B");
  EXPECT_EQ(CountText(671'000'000'000), "671 B");
}

TEST(Quantities, TimesHaveAUnitInWhichTheyAreAtLeastOne) {
  EXPECT_EQ(TimeText(0), "0.0 us");
  EXPECT_EQ(TimeText(4.46e-6), "4.5 us");
  EXPECT_EQ(TimeText(1e-3), "1.00 ms");
  EXPECT_EQ(TimeText(0.1234), "123.40 ms");
  EXPECT_EQ(TimeText(1), "1.00 s");
  EXPECT_EQ(TimeText(61.5), "61.50 s");
}

// The definition that seeds of requests, made models and simulations rest on.
TEST(Rng, BitsAreSplitmixOfSeedAndCounter) {
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  };
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) {
    for (const uint64_t counter : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
      EXPECT_EQ(RandomBits(seed, counter), mix(mix(seed + kGolden) + (counter + 1) * kGolden));
    }
  }
  // The published splitmix64 stream of seed 0 begins with this.
  EXPECT_EQ(mix(kGolden), 0xe220a8397b1dcdafull);
}

TEST(Rng, ASequenceIsItsStreamOneCounterAtATime) {
  Rng rng(5);
  EXPECT_EQ(rng.Next(), RandomBits(5, 0));
  EXPECT_EQ(rng.Uniform(), RandomUniform(5, 1));
  EXPECT_EQ(rng.Below(10), static_cast<int64_t>(RandomBits(5, 2) % 10));
  EXPECT_EQ(rng.Next(), RandomBits(5, 3));
}

TEST(Rng, DrawsAreInTheirRangesAndSpread) {
  Rng rng(1);
  std::set<int64_t> below;
  double sum = 0, normal = 0, square = 0;
  for (int i = 0; i < 4000; ++i) {
    const double uniform = rng.Uniform();
    EXPECT_GE(uniform, 0);
    EXPECT_LT(uniform, 1);
    sum += uniform;
    const int64_t n = rng.Below(7);
    EXPECT_GE(n, 0);
    EXPECT_LT(n, 7);
    below.insert(n);
    const double z = rng.Normal();
    EXPECT_LE(std::abs(z), 6);
    normal += z;
    square += z * z;
  }
  EXPECT_EQ(below.size(), 7u);
  EXPECT_NEAR(sum / 4000, 0.5, 0.02);
  EXPECT_NEAR(normal / 4000, 0, 0.06);
  EXPECT_NEAR(square / 4000, 1, 0.08);
}

}  // namespace
}  // namespace braid
