// Sampling: the formulas of the penalties, the filters, the draws' distribution and their
// independence of anything but the arguments.
#include "ops/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "ops/testing/test_context.h"

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
  const auto top = TopLogprobs(test.context, logits, StatsOf(test.context, logits), 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].first, 4);
  EXPECT_EQ(top[1].first, 1);
  EXPECT_EQ(top[2].first, 2);
}

TEST(Sample, TopLogprobsAreThoseOfASort) {
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    for (const int seed : {1, 2, 3, 4}) {
      std::vector<float> logits = RandomLogits(static_cast<uint64_t>(seed), 5003);
      if (seed % 2 == 0) {
        for (float& logit : logits) logit = std::round(logit);  // ties in many blocks
      }
      const LogitStats stats = StatsOf(test.context, logits);
      std::vector<TokenId> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::greater<>(),
                               [&](TokenId id) { return logits[static_cast<size_t>(id)]; });
      for (const int32_t count : {0, 1, 20, 300}) {
        const auto top = TopLogprobs(test.context, logits, stats, count);
        ASSERT_EQ(std::ssize(top), count);
        for (int32_t i = 0; i < count; ++i) {
          const auto at = static_cast<size_t>(i);
          ASSERT_EQ(top[at].first, order[at]) << NameOf(isa) << " seed " << seed << " at " << i;
          const float logit = logits[static_cast<size_t>(order[at])];
          EXPECT_EQ(top[at].second, LogprobOf(logit, stats));
        }
      }
    }
  }
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
  TestContext test(BestIsa(DetectCpu()));
  SampleScratch scratch;
  for (uint64_t i = 0; i < draws; ++i) {
    seen[Sample(test.context, params, logits, RandomUniform(7, i), scratch)] +=
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

TEST(Sample, ArgMaxIsTheFirstOfTheLargest) {
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    for (size_t at : {size_t{0}, size_t{17}, size_t{255}, size_t{256}, size_t{999}, size_t{1002}}) {
      std::vector<float> logits = RandomLogits(3, 1003);
      logits[at] = 50.0f;
      logits.back() = 50.0f;
      EXPECT_EQ(ArgMax(test.context, logits), static_cast<TokenId>(at)) << NameOf(isa);
    }
  }
}

// The candidates that the filters keep, found by sorting all of them.
std::vector<TokenId> KeptBySorting(const SampleParams& params, std::span<const float> logits) {
  const float maximum = *std::max_element(logits.begin(), logits.end());
  std::vector<std::pair<float, TokenId>> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float weight = std::exp((logits[i] - maximum) / params.temperature);
    if (weight > 0 && weight >= params.min_p) all.emplace_back(-weight, static_cast<TokenId>(i));
  }
  std::sort(all.begin(), all.end());
  if (params.top_k > 0) all.resize(std::min(all.size(), static_cast<size_t>(params.top_k)));
  double sum = 0, reached = 0;
  for (const auto& entry : all) sum -= double{entry.first};
  std::vector<TokenId> kept;
  for (const auto& [weight, id] : all) {
    if (params.top_p < 1 && reached >= params.top_p * sum) break;
    kept.push_back(id);
    reached -= double{weight};
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

TEST(Sample, TheFiltersKeepWhatASortOfTheVocabularyKeeps) {
  const SampleParams all_params[] = {
      {.top_k = 1},     {.top_k = 20},
      {.top_k = 900},   {.top_k = 5, .top_p = 0.7f},
      {.min_p = 0.02f}, {.temperature = 0.6f, .top_k = 40, .top_p = 0.9f, .min_p = 0.05f},
      {.top_p = 0.3f},  {.temperature = 2.0f, .top_p = 0.95f},
      {.top_p = 0.99f}, {.temperature = 0.1f, .top_p = 0.5f}};
  std::vector<float> logits = RandomLogits(4, 5003);
  logits[7] = -std::numeric_limits<float>::infinity();
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    SampleScratch scratch;
    for (const SampleParams& params : all_params) {
      const TokenId token = Sample(test.context, params, logits, 0.5, scratch);
      std::vector<TokenId> kept;
      for (const auto& candidate : scratch.candidates) kept.push_back(candidate.second);
      std::sort(kept.begin(), kept.end());
      EXPECT_EQ(kept, KeptBySorting(params, logits))
          << NameOf(isa) << " top_k " << params.top_k << " top_p " << params.top_p;
      EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), token));
    }
  }
}

TEST(Sample, ADrawFromEverythingFollowsTheCumulativeSum) {
  const std::vector<float> logits = RandomLogits(5, 2003);
  const float maximum = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float l : logits) total += std::exp((double{l} - maximum) / 0.7);
  TestContext test(BestIsa(DetectCpu()));
  SampleScratch scratch;
  for (double uniform : {0.0, 0.1, 0.37, 0.5, 0.9, 0.99999}) {
    const auto token =
        static_cast<size_t>(Sample(test.context, {.temperature = 0.7f}, logits, uniform, scratch));
    double before = 0;
    for (size_t i = 0; i < token; ++i) before += std::exp((double{logits[i]} - maximum) / 0.7);
    const double after = before + std::exp((double{logits[token]} - maximum) / 0.7);
    EXPECT_LE(before, (uniform + 1e-5) * total);
    EXPECT_GE(after, (uniform - 1e-5) * total);
  }
}

TEST(Sample, ADrawFromTheLargestGoesByTheirIds) {
  TestContext test(BestIsa(DetectCpu()));
  SampleScratch scratch;
  // Of the three largest the most probable, the last, is drawn last.
  const std::vector<float> logits = {1, 0, 1.5f, -1, 2};
  for (const SampleParams& params : {SampleParams{.top_k = 3}, SampleParams{.top_p = 0.85f}}) {
    EXPECT_EQ(Sample(test.context, params, logits, 0.0, scratch), 0);
    EXPECT_EQ(Sample(test.context, params, logits, 0.3, scratch), 2);
    EXPECT_EQ(Sample(test.context, params, logits, 0.99, scratch), 4);
  }
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
