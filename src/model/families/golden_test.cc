// Every stored golden set of transformers (or of the slow oracle) through the decoder alone: the
// log-probabilities of the given tokens, and the same bits however a prompt is cut into steps; the
// log-probabilities again with latent attention in the expanded form.
#include <gtest/gtest.h>

#include <cstring>

#include "model/families/golden_model.h"

namespace braid {
namespace {

std::vector<int32_t> Every(int32_t tokens) {
  std::vector<int32_t> cuts;
  for (int32_t i = 1; i < tokens; ++i) cuts.push_back(i);
  return cuts;
}

class FamilyGolden : public testing::TestWithParam<const char*> {};

TEST_P(FamilyGolden, LogProbabilitiesAreTheOraclesAndNoCutChangesABit) {
  const std::vector<Golden> goldens = ReadGoldens(GetParam());
  ASSERT_FALSE(goldens.empty());
  const Isa best = BestIsa(DetectCpu());
  GoldenModel two(GetParam(), 2, best), one(GetParam(), 1, best);
  const auto width = static_cast<size_t>(two.vocabulary());
  double worst = 0;
  for (const Golden& golden : goldens) {
    const std::vector<float> whole = two.Logits(golden.ids, {});
    worst = std::max(worst, LargestDifference(golden, whole, width));
    for (const std::vector<int32_t>& cuts :
         {std::vector<int32_t>{},
          {1, 2, 3, 63, 65, 130},
          {64, 128, 192, 256},
          {100},
          Every(static_cast<int32_t>(std::min<size_t>(golden.ids.size(), 130)))}) {
      const std::vector<float> cut = one.Logits(golden.ids, cuts);
      ASSERT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)), 0)
          << golden.ids.size() << " tokens, " << cuts.size() << " cuts";
    }
  }
  RecordProperty("max_difference", std::to_string(worst));
  EXPECT_LE(worst, 1e-4);
}

TEST_P(FamilyGolden, TheReferencesAgree) {
  const std::vector<Golden> goldens = ReadGoldens(GetParam());
  GoldenModel model(GetParam(), 1, Isa::kBase);
  for (const Golden& golden : goldens) {
    if (golden.ids.size() > 70) continue;
    const std::vector<float> logits = model.Logits(golden.ids, {2, 40});
    EXPECT_LE(LargestDifference(golden, logits, static_cast<size_t>(model.vocabulary())), 1e-4);
  }
}

TEST_P(FamilyGolden, NoCutChangesABitInBf16Either) {
  const Isa best = BestIsa(DetectCpu());
  GoldenModel two(GetParam(), 2, best, Compute::kBF16, DType::kBF16);
  GoldenModel one(GetParam(), 1, best, Compute::kBF16, DType::kBF16);
  for (const Golden& golden : ReadGoldens(GetParam())) {
    const std::vector<float> whole = two.Logits(golden.ids, {});
    EXPECT_TRUE(std::isfinite(whole.back()));
    for (const std::vector<int32_t>& cuts :
         {std::vector<int32_t>{1, 2, 3, 63, 65, 130}, {64, 128, 192, 256}, Every(70)}) {
      const std::vector<float> cut = one.Logits(golden.ids, cuts);
      ASSERT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)), 0)
          << golden.ids.size() << " tokens, " << cuts.size() << " cuts";
    }
  }
}

class ExpandedGolden : public testing::TestWithParam<const char*> {};

TEST_P(ExpandedGolden, LogProbabilitiesAreTheOracles) {
  GoldenModel model(2, BestIsa(DetectCpu()), Compute::kF32, DType::kF32);
  Result<ModelSpec> spec = ReadModelSpec(GoldenDirectory(GetParam()));
  ASSERT_TRUE(spec) << spec.error().message;
  // Steps of 50 tokens and more take the expanded form, the others the absorbed one.
  ExpandLatentAttention(*spec, 50);
  const Status loaded = model.Load(GetParam(), *std::move(spec));
  ASSERT_TRUE(loaded) << loaded.error().message;
  const auto width = static_cast<size_t>(model.vocabulary());
  GoldenModel absorbed(GetParam(), 2, BestIsa(DetectCpu()));
  double worst = 0;
  for (const Golden& golden : ReadGoldens(GetParam())) {
    for (const std::vector<int32_t>& cuts :
         {std::vector<int32_t>{}, {1, 2, 3, 63, 65, 130}, {64, 128, 192, 256}, {100}}) {
      const std::vector<float> logits = model.Logits(golden.ids, cuts);
      worst = std::max(worst, LargestDifference(golden, logits, width));
      if (golden.ids.size() < 200) continue;
      EXPECT_NE(logits, absorbed.Logits(golden.ids, cuts)) << "the other form was not taken";
    }
  }
  RecordProperty("max_difference", std::to_string(worst));
  EXPECT_LE(worst, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Latent, ExpandedGolden,
                         testing::Values("kimi_linear_a", "kimi_linear_b", "kimi_linear_c",
                                         "ling_3_a", "ling_3_b", "ling_3_c", "ling_2_a", "ling_2_b",
                                         "ling_2_c", "deepseek_v3_a", "deepseek_v3_b",
                                         "deepseek_v3_c"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(All, FamilyGolden,
                         testing::Values("qwen3_5_a", "qwen3_5_b", "qwen3_5_c", "qwen3_next_a",
                                         "qwen3_next_b", "qwen3_next_c", "kimi_linear_a",
                                         "kimi_linear_b", "kimi_linear_c", "ling_3_a", "ling_3_b",
                                         "ling_3_c", "ling_2_a", "ling_2_b", "ling_2_c",
                                         "deepseek_v3_a", "deepseek_v3_b", "deepseek_v3_c",
                                         "qwen3_a", "qwen3_moe_a", "qwen3_moe_b"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid
