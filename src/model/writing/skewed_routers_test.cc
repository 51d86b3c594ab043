// Made routers choose with the shares that they were made for.
#include "model/writing/skewed_routers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "model/families/families.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

Result<ModelSpec> SkewedSpecOf(std::string_view family, const std::vector<const char*>& ones) {
  json::object config = FindFamily(family)->example(ExampleSize::kTiny);
  for (const char* key : ones) config[key] = 1;
  return ParseModelSpec(json::serialize(config), "test");
}

TEST(SkewedRouters, SharesAreThoseOfDrawsWithoutRepetition) {
  constexpr int32_t kExperts = 64, kTopK = 8;
  const std::vector<double> shares = ChosenShares(kExperts, kTopK, 1.2);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), kTopK, 1e-6);
  Rng rng(1);
  std::vector<double> drawn(kExperts);
  constexpr int kTokens = 4000;
  for (int t = 0; t < kTokens; ++t) {
    std::vector<std::pair<double, size_t>> keys;
    for (size_t e = 0; e < kExperts; ++e) {
      const double draw = (static_cast<double>(rng.Below(1 << 30)) + 0.5) / (1 << 30);
      keys.push_back(
          {-1.2 * std::log(1.0 + static_cast<double>(e)) - std::log(-std::log(draw)), e});
    }
    std::ranges::partial_sort(keys, keys.begin() + kTopK, std::greater());
    for (int j = 0; j < kTopK; ++j) drawn[keys[static_cast<size_t>(j)].second] += 1.0 / kTokens;
  }
  for (size_t e = 0; e < kExperts; ++e) EXPECT_NEAR(drawn[e], shares[e], 0.04) << e;
  for (size_t e = 1; e < kExperts; ++e) EXPECT_LT(shares[e], shares[e - 1]);
}

TEST(SkewedRouters, ScoresAboveTheThresholdHaveTheShares) {
  const std::vector<double> shares = {0.9, 0.5, 0.1, 0.01};
  constexpr double kSpread = 1.5;
  const std::vector<float> bias = BiasOfShares(shares, kSpread);
  Rng rng(2);
  std::vector<double> chosen(shares.size());
  constexpr int kTokens = 20'000;
  for (int t = 0; t < kTokens; ++t) {
    for (size_t e = 0; e < shares.size(); ++e) {
      const double score = 1 / (1 + std::exp(-kSpread * rng.Normal()));
      chosen[e] += score + bias[e] > 0 ? 1.0 / kTokens : 0;
    }
  }
  for (size_t e = 0; e < shares.size(); ++e) EXPECT_NEAR(chosen[e], shares[e], 0.01) << e;
}

TEST(SkewedRouters, EachLayerHasAnOrderOfItsOwn) {
  const Result<ModelSpec> spec = SkewedSpecOf("ling_2", {"n_group", "topk_group"});
  ASSERT_TRUE(spec) << spec.error().message;
  const auto biases = SkewedBiases(*spec, 1.2, 7);
  ASSERT_TRUE(biases) << biases.error().message;
  ASSERT_GE(biases->size(), 2u);
  std::vector<float> first = biases->begin()->second, second = std::next(biases->begin())->second;
  EXPECT_NE(first, second);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, second);
}

TEST(SkewedRouters, RefusesRoutersThatCannotBeSkewed) {
  for (const char* family : {"ling_2", "qwen3_5_moe"}) {  // groups; no bias
    const Result<ModelSpec> spec = SkewedSpecOf(family, {});
    ASSERT_TRUE(spec) << spec.error().message;
    const auto biases = SkewedBiases(*spec, 1.2, 7);
    ASSERT_FALSE(biases) << family;
    EXPECT_THAT(biases.error().message, HasSubstr("n_group=1,topk_group=1"));
  }
  const Result<ModelSpec> dense = SkewedSpecOf("qwen3_5", {});
  ASSERT_TRUE(dense) << dense.error().message;
  EXPECT_THAT(SkewedBiases(*dense, 1.2, 7).error().message, HasSubstr("has experts"));
}

}  // namespace
}  // namespace braid
