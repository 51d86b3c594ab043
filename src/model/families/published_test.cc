// The configs of published models, written from their documents: what follows from them exactly
// must be what those documents say. The weights are not there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/system/file.h"
#include "model/describe.h"
#include "model/families/families.h"

namespace braid {
namespace {

ModelSpec LoadSpec(const std::string& name) {
  const std::string path = BRAID_SOURCE_DIR "/tests/configs/" + name + ".json";
  Result<std::string> text = ReadFile(path, 1 << 20);
  CHECK(text, "{}", text.error().message);
  Result<ModelSpec> spec = ParseModelSpec(*text, path);
  CHECK(spec, "{}", spec.error().message);
  return *std::move(spec);
}

struct Published {
  const char* config;
  double billions;         // of parameters, draft head excluded
  double active_billions;  // of a token's pass, head included, embedding not
  double draft_billions;
  int64_t kv_bytes;           // per token, bf16
  int64_t recurrent_bytes;    // per sequence, fp32
  int64_t convolution_bytes;  // per sequence, bf16
};

constexpr int64_t kMiB = 1 << 20;
constexpr Published kPublished[] = {
    {"qwen3_5_35b_a3b", 34.66, 2.95, 0.845, 20480, 60 * kMiB, 1474560},
    {"qwen3_5_397b_a17b", 396.35, 16.33, 6.60, 30720, 180 * kMiB, 3317760},
    {"qwen3_next_80b_a3b", 79.67, 3.56, 0, 24576, 72 * kMiB, 1769472},
    {"kimi_linear_48b_a3b", 49.12, 3.11, 0, 8064, 40 * kMiB, 1474560},
    {"ling_2_6_1t", 1012.23, 62.29, 13.18, 11520, 280 * kMiB, 0},
    {"ling_2_6_flash", 104.19, 6.81, 3.31, 4608, 56 * kMiB, 0},
    {"ling_3_tiny", 7.893, 1.14, 0, 6912, 18 * kMiB, 648 * 1024},
    {"ling_3_flash", 124.41, 5.10, 3.07, 8064, 70 * kMiB, 2580480},
    {"deepseek_v3", 671.03, 36.63, 11.61, 70272, 0, 0},
};

int64_t NumberOf(const json::object& facts, std::string_view section, std::string_view key) {
  const json::object& inner = facts.at(section).as_object();
  const json::value* value = inner.if_contains(key);
  return value ? value->as_int64() : 0;
}

TEST(PublishedConfigs, GiveThePublishedNumbers) {
  for (const Published& known : kPublished) {
    const json::object facts = FactsAsJson(DescribeModel(LoadSpec(known.config), nullptr, nullptr));
    const auto number = [&](std::string_view section, std::string_view key) {
      return NumberOf(facts, section, key);
    };
    const auto billions = [&](std::string_view key) {
      return static_cast<double>(number("parameters", key)) / 1e9;
    };
    EXPECT_NEAR(billions("total"), known.billions, 0.0051) << known.config;
    EXPECT_NEAR(billions("active_per_token"), known.active_billions, 0.0051) << known.config;
    EXPECT_NEAR(billions("draft_head"), known.draft_billions, 0.0051) << known.config;
    EXPECT_EQ(number("sizes", "all_bf16"), 2 * number("parameters", "total")) << known.config;
    EXPECT_EQ(number("cache", "kv_bytes_per_token_bf16"), known.kv_bytes) << known.config;
    EXPECT_EQ(number("cache", "recurrent_state_bytes"), known.recurrent_bytes) << known.config;
    EXPECT_EQ(number("cache", "convolution_state_bytes_bf16"), known.convolution_bytes)
        << known.config;
  }
}

// Names of the tensors that the specs ask for, in the form that has most of them (one tensor per
// expert) or fewest (stacked experts).
int64_t TensorCount(const std::vector<WeightSpec>& weights, bool most) {
  std::set<std::string> names;
  for (const WeightSpec& weight : weights) {
    const std::vector<Piece>* form = &weight.sources.front();
    for (const std::vector<Piece>& pieces : weight.sources) {
      if (most ? pieces.size() > form->size() : pieces.size() < form->size()) form = &pieces;
    }
    for (const Piece& piece : *form) names.insert(piece.tensor);
  }
  return static_cast<int64_t>(names.size());
}

TEST(PublishedConfigs, AskForAsManyTensorsAsTheCheckpointsHave) {
  struct Known {
    const char* config;
    bool per_expert;
    int64_t tensors, draft;
  };
  // DeepSeek's draft layer comes with copies of embedding and head, which are skipped.
  const Known kKnown[] = {
      {"qwen3_5_35b_a3b", false, 693, 19}, {"qwen3_5_397b_a17b", false, 1038, 19},
      {"ling_2_6_1t", true, 59413, 786},   {"ling_2_6_flash", true, 24229, 786},
      {"ling_3_tiny", true, 9283, 0},      {"ling_3_flash", true, 62230, 1553},
      {"deepseek_v3", true, 45395, 786},
  };
  for (const Known& known : kKnown) {
    const ModelSpec spec = LoadSpec(known.config);
    EXPECT_EQ(TensorCount(WeightsOf(spec), known.per_expert), known.tensors) << known.config;
    if (known.draft == 0) continue;
    EXPECT_EQ(TensorCount(DraftWeightsOf(spec), known.per_expert), known.draft) << known.config;
  }
}

}  // namespace
}  // namespace braid
