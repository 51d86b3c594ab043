// Sampling: the formulas of the penalties, the filters, the draws' distribution and their
// independence of anything but the arguments.
#include "ops/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "ops/test_context.h"

namespace braid::ops {
namespace {

std::vector<float> RandomLogits(uint64_t seed, int64_t count) {
  Rng rng(seed);
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& v : logits) v = static_cast<float>(rng.Normal() * 3);
  return logits;
}

TEST(Sample, LogprobsSumToOneOnEveryInstructionSet) {
  const std::vector<float> logits = RandomLogits(1, 1003);
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    const LogitStats stats = StatsOf(test.context, logits);
    double sum = 0;
    for (float logit : logits) sum += std::exp(double{LogprobOf(logit, stats)});
    EXPECT_NEAR(sum, 1.0, 1e-6);
    EXPECT_TRUE(stats.finite);
  }
}

TEST(Sample, NonFiniteLogitsAreSeen) {
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (size_t at : {size_t{0}, size_t{500}, size_t{1002}}) {
        std::vector<float> logits = RandomLogits(2, 1003);
        logits[at] = bad;
        EXPECT_FALSE(StatsOf(test.context, logits).finite) << NameOf(isa) << " at " << at;
      }
    }
  }
}

TEST(Sample, TopLogprobsAreSortedAndTiesGoToTheSmallerId) {
  TestContext test(Isa::kBase);
  const std::vector<float> logits = {1, 3, 3, 0, 5};
  const auto top = TopLogprobs(logits, StatsOf(test.context, logits), 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].first, 4);
  EXPECT_EQ(top[1].first, 1);
  EXPECT_EQ(top[2].first, 2);
  EXPECT_EQ(ArgMax(std::vector<float>{1, 3, 3}), 1);
}

TEST(Sample, PenaltiesFollowTheirFormulasAndLeaveNoTrace) {
  std::vector<float> logits = {2, -2, 2, -2, 1};
  std::vector<int32_t> counts(5);
  const TokenId prompt[] = {0, 1}, output[] = {2, 3, 3, 0};
  ApplyPenalties({.repetition = 2, .presence = 0.5f, .frequency = 0.25f}, prompt, output, counts,
                 logits);
  EXPECT_FLOAT_EQ(logits[0], 1 - 0.5f - 0.25f);
  EXPECT_FLOAT_EQ(logits[1], -4);
  EXPECT_FLOAT_EQ(logits[2], 1 - 0.5f - 0.25f);
  EXPECT_FLOAT_EQ(logits[3], -4 - 0.5f - 0.5f);
  EXPECT_FLOAT_EQ(logits[4], 1);
  for (int32_t count : counts) EXPECT_EQ(count, 0);
}

// Relative frequencies of the draws.
std::map<TokenId, double> Frequencies(const SampleParams& params, std::span<const float> logits,
                                      uint64_t draws = 20000) {
  std::map<TokenId, double> seen;
  std::vector<std::pair<float, TokenId>> candidates;
  for (uint64_t i = 0; i < draws; ++i) {
    seen[Sample(params, logits, RandomUniform(7, i), candidates)] +=
        1.0 / static_cast<double>(draws);
  }
  return seen;
}

TEST(Sample, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0, 1, 2, -1};
  double sum = 0;
  for (float l : logits) sum += std::exp(l / 0.8);
  const auto seen = Frequencies({.temperature = 0.8f}, logits);
  for (TokenId t = 0; t < 4; ++t) {
    EXPECT_NEAR(seen.at(t), std::exp(logits[static_cast<size_t>(t)] / 0.8) / sum, 0.012);
  }
}

TEST(Sample, TopKTopPAndMinPKeepTheLargest) {
  const std::vector<float> logits = {0, 3, 1, 2};
  EXPECT_EQ(Frequencies({.top_k = 2}, logits).size(), 2u);
  EXPECT_EQ(Frequencies({.top_k = 1}, logits).begin()->first, 1);
  // Probabilities are about 0.03, 0.64, 0.09, 0.24.
  EXPECT_EQ(Frequencies({.top_p = 0.6f}, logits).size(), 1u);
  EXPECT_EQ(Frequencies({.top_p = 0.8f}, logits).size(), 2u);
  EXPECT_EQ(Frequencies({.top_p = 0.9f}, logits).size(), 3u);
  EXPECT_EQ(Frequencies({.min_p = 0.3f}, logits).size(), 2u);
}

TEST(Sample, TopPOfALargeVocabularyNeedsNoFullSort) {
  const std::vector<float> flat(5000, 0.0f);
  const auto seen = Frequencies({.top_p = 0.5f}, flat, 4000);
  // Equal weights: the smaller half of the ids is kept.
  EXPECT_LT(seen.rbegin()->first, 2500);
  EXPECT_GT(seen.size(), 1800u);
}

}  // namespace
}  // namespace braid::ops
