// The draft heads of the stored golden sets: the log-probabilities of the slow oracle
// (tests/golden/oracle_heads.py), and the same bits however the entries are made.
#include <gtest/gtest.h>

#include <cstring>

#include "model/families/golden_model.h"

namespace braid {
namespace {

class DraftGolden : public testing::TestWithParam<const char*> {
 protected:
  static void Load(GoldenModel& model) {
    Result<ModelSpec> spec = ReadModelSpec(GoldenDirectory(GetParam()));
    ASSERT_TRUE(spec) << spec.error().message;
    const Status loaded = model.Load(GetParam(), *std::move(spec), true);
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
};

// The oracle's number t is of token t + 2, of what it sees up to the state of token t.
TEST_P(DraftGolden, LogProbabilitiesAreTheOracles) {
  for (const Isa isa : {Isa::kBase, BestIsa(DetectCpu())}) {
    GoldenModel model(2, isa, Compute::kF32, DType::kF32);
    Load(model);
    const auto width = static_cast<size_t>(model.vocabulary());
    for (Golden golden : ReadGoldens(GetParam(), "draft.jsonl")) {
      if (isa == Isa::kBase && golden.ids.size() > 70) continue;
      const std::vector<float> logits = model.DraftLogits(golden.ids, {});
      golden.ids.erase(golden.ids.begin());
      golden.logprobs.insert(golden.logprobs.begin(), 0.0);
      const std::vector<float> seen(logits.begin() + static_cast<ptrdiff_t>(width), logits.end());
      ASSERT_EQ(golden.ids.size(), golden.logprobs.size());
      EXPECT_LE(LargestDifference(golden, seen, width), 1e-4) << golden.ids.size() << " tokens";
    }
  }
}

TEST_P(DraftGolden, NoCutChangesABit) {
  for (const Compute compute : {Compute::kF32, Compute::kBF16}) {
    const DType kv = compute == Compute::kF32 ? DType::kF32 : DType::kBF16;
    GoldenModel model(1, BestIsa(DetectCpu()), compute, kv);
    Load(model);
    for (const Golden& golden : ReadGoldens(GetParam(), "draft.jsonl")) {
      const std::vector<float> whole = model.DraftLogits(golden.ids, {});
      for (const std::vector<int32_t>& cuts : {std::vector<int32_t>{1, 2, 3, 63, 65, 130}, {64}}) {
        const std::vector<float> cut = model.DraftLogits(golden.ids, cuts);
        ASSERT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)), 0)
            << golden.ids.size() << " tokens";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DraftGolden,
                         testing::Values("qwen3_5_b", "qwen3_5_moe_b", "qwen3_next_a", "ling_2_a",
                                         "ling_3_a", "deepseek_v3_a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid
