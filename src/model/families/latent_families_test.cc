// The families with latent attention: configs with the published sizes give the published numbers,
// examples load with nothing left over, and keys that nobody implements are refused by name.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/block.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/writing/make_model.h"
#include "model/loading/test_loaded_model.h"

namespace braid {
namespace {

using testing::HasSubstr;

json::object Example(const std::string& family, const json::object& changes) {
  Result<Family> found = FindFamily(family);
  CHECK(found, "{}", family);
  json::object config = found->example(ExampleSize::kTiny);
  for (const auto& [key, value] : changes) config[key] = value;
  return config;
}

ModelSpec SpecOf(const std::string& family, const json::object& changes) {
  Result<ModelSpec> spec = ParseModelSpec(json::serialize(Example(family, changes)), "config.json");
  CHECK(spec, "{}", spec.error().message);
  return *spec;
}

std::string LatentErrorOf(const std::string& family, const json::object& changes) {
  Result<ModelSpec> spec = ParseModelSpec(json::serialize(Example(family, changes)), "config.json");
  return spec ? "" : spec.error().message;
}

double Billions(const ModelSpec& spec) {
  return static_cast<double>(ParametersOf(spec).total) / 1e9;
}

int64_t KvBytesPerToken(const ModelSpec& spec) {
  for (const GroupGeometry& group : CachePlanOf(spec, DType::kBF16).groups) {
    if (group.kind == GroupKind::kFull) return group.block_bytes / kBlockTokens;
  }
  return 0;
}

const json::object kDeepseek = {{"vocab_size", 129280},
                                {"hidden_size", 7168},
                                {"num_hidden_layers", 61},
                                {"num_attention_heads", 128},
                                {"q_lora_rank", 1536},
                                {"kv_lora_rank", 512},
                                {"qk_nope_head_dim", 128},
                                {"qk_rope_head_dim", 64},
                                {"v_head_dim", 128},
                                {"intermediate_size", 18432},
                                {"first_k_dense_replace", 3},
                                {"n_routed_experts", 256},
                                {"num_experts_per_tok", 8},
                                {"moe_intermediate_size", 2048},
                                {"n_group", 8},
                                {"topk_group", 4},
                                {"max_position_embeddings", 163840}};

TEST(DeepseekV3, ThePublishedConfigGivesThePublishedNumbers) {
  const ModelSpec spec = SpecOf("deepseek_v3", kDeepseek);
  EXPECT_NEAR(Billions(spec), 671.03, 0.005);
  EXPECT_EQ(KvBytesPerToken(spec), 70272);
  const auto& mixer = std::get<LatentAttention>(spec.layers[0].mixer);
  EXPECT_NEAR(mixer.score_scale, 0.1352337789, 1e-8);
  EXPECT_EQ(mixer.rotary.scale, 1.0f);
  float frequency[32];
  FillInverseFrequencies(mixer.rotary, frequency);
  const std::pair<size_t, double> kKnown[] = {
      {0, 1.0},     {1, 0.7498942093},    {10, 0.05623413252},  {11, 0.03900692657},
      {16, 0.0055}, {22, 1.778279410e-4}, {23, 3.333803580e-5}, {31, 3.333803580e-6}};
  for (const auto& [at, value] : kKnown) EXPECT_NEAR(frequency[at] / value, 1.0, 1e-6) << at;
}

TEST(KimiLinear, ThePublishedConfigGivesThePublishedNumbers) {
  const ModelSpec spec = SpecOf(
      "kimi_linear",
      {{"vocab_size", 163840},
       {"hidden_size", 2304},
       {"num_hidden_layers", 27},
       {"num_attention_heads", 32},
       {"kv_lora_rank", 512},
       {"qk_nope_head_dim", 128},
       {"qk_rope_head_dim", 64},
       {"v_head_dim", 128},
       {"intermediate_size", 9216},
       {"num_experts", 256},
       {"num_experts_per_token", 8},
       {"moe_intermediate_size", 1024},
       {"head_dim", 72},
       {"linear_attn_config",
        {{"num_heads", 32},
         {"head_dim", 128},
         {"short_conv_kernel_size", 4},
         {"kda_layers", {1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26}},
         {"full_attn_layers", {4, 8, 12, 16, 20, 24, 27}}}}});
  EXPECT_NEAR(Billions(spec), 49.1, 0.05);
  EXPECT_EQ(KvBytesPerToken(spec), 8064);
  for (size_t i : {3u, 7u, 23u, 26u}) {
    EXPECT_TRUE(std::holds_alternative<LatentAttention>(spec.layers[i].mixer)) << i;
  }
  EXPECT_TRUE(std::holds_alternative<LinearAttention>(spec.layers[25].mixer));
  EXPECT_EQ(std::get<LatentAttention>(spec.layers[3].mixer).rotary.dims, 0);
}

const json::object kLing1T = {{"vocab_size", 157184},
                              {"hidden_size", 8192},
                              {"num_hidden_layers", 80},
                              {"num_attention_heads", 64},
                              {"head_dim", 128},
                              {"layer_group_size", 8},
                              {"group_norm_size", 8},
                              {"q_lora_rank", 1536},
                              {"kv_lora_rank", 512},
                              {"qk_nope_head_dim", 128},
                              {"qk_rope_head_dim", 64},
                              {"v_head_dim", 128},
                              {"num_experts", 256},
                              {"num_experts_per_tok", 8},
                              {"moe_intermediate_size", 2048},
                              {"intermediate_size", 18432},
                              {"first_k_dense_replace", 4},
                              {"n_group", 8},
                              {"topk_group", 4}};

TEST(Ling2, ThePublishedConfigGivesThePublishedNumbers) {
  const ModelSpec spec = SpecOf("ling_2", kLing1T);
  EXPECT_NEAR(Billions(spec), 1012.2, 0.05);
  EXPECT_EQ(KvBytesPerToken(spec), 11520);
}

TEST(Ling2, BothSlopeConventionsGiveTheirDecays) {
  struct Known {
    size_t layer;
    double first_head[2], last_head[2];  // by convention
  };
  const Known kKnown[] = {{0, {0.39971111, 0.39509823}, {0.99610133, 0.99605208}},
                          {1, {0.40437785, 0.39971111}, {0.99615059, 0.99610133}},
                          {38, {0.62131153, 0.61414126}, {0.99797472, 0.99792538}},
                          {78, {0.98845040, 0.97704315}, {0.99995052, 0.99990107}}};
  json::object config = kLing1T;
  for (size_t mode : {0u, 1u}) {
    config["lightning_slope_mode"] = mode == 0 ? "production" : "hf";
    const ModelSpec spec = SpecOf("ling_2", config);
    for (const Known& known : kKnown) {
      const auto& decay = std::get<LinearAttention>(spec.layers[known.layer].mixer).constant_decay;
      EXPECT_NEAR(std::exp(decay.front()), known.first_head[mode], 1e-7) << known.layer;
      EXPECT_NEAR(std::exp(decay.back()), known.last_head[mode], 1e-7) << known.layer;
    }
  }
}

TEST(Ling2, TheTurnedPartOfAHeadMayBeNested) {
  const ModelSpec spec = SpecOf(
      "ling_2", {{"partial_rotary_factor", nullptr},
                 {"rope_parameters", {{"rope_theta", 6e6}, {"partial_rotary_factor", 0.25}}}});
  EXPECT_EQ(std::get<LinearAttention>(spec.layers[0].mixer).rotary.dims, 4);
}

TEST(Ling3, ThePublishedConfigGivesThePublishedNumbers) {
  const ModelSpec spec = SpecOf("ling_3", {{"vocab_size", 157184},
                                           {"hidden_size", 1536},
                                           {"num_hidden_layers", 24},
                                           {"num_attention_heads", 16},
                                           {"head_dim", 128},
                                           {"q_lora_rank", 256},
                                           {"kv_lora_rank", 512},
                                           {"qk_nope_head_dim", 128},
                                           {"qk_rope_head_dim", 64},
                                           {"v_head_dim", 128},
                                           {"num_experts", 128},
                                           {"num_experts_per_tok", 8},
                                           {"moe_intermediate_size", 512},
                                           {"intermediate_size", 4608},
                                           {"n_group", 8},
                                           {"topk_group", 4}});
  EXPECT_NEAR(Billions(spec), 7.893, 0.001);
  EXPECT_EQ(KvBytesPerToken(spec), 6912);
}

TEST(Ling3, LimitsOfTheActivationAreReadPerLayer) {
  const ModelSpec spec = SpecOf("ling_3", {{"expert_swiglu_limit_list", {0, nullptr, 4.0, 4.0}},
                                           {"share_expert_swiglu_limit_list", {0, 0, 5.0, 7.0}}});
  const auto& moe = std::get<MoeFfn>(spec.layers[3].ffn);
  EXPECT_EQ(moe.limit, 4.0f);
  EXPECT_EQ(moe.shared_limit, 7.0f);
  EXPECT_EQ(std::get<MoeFfn>(spec.layers[1].ffn).limit, 0.0f);
  EXPECT_EQ(std::get<MoeFfn>(spec.draft->layers[0].ffn).limit, 0.0f);
}

TEST(Ling3, TheDraftHeadHasTheLimitsBehindThoseOfTheLayers) {
  const ModelSpec spec = SpecOf("ling_3", {{"num_nextn_predict_layers", 1},
                                           {"expert_swiglu_limit_list", {0, 0, 4.0, 4.0, 3.0}},
                                           {"share_expert_swiglu_limit_list", {0, 0, 5, 5, 7}}});
  const auto& moe = std::get<MoeFfn>(spec.draft->layers[0].ffn);
  EXPECT_EQ(moe.limit, 3.0f);
  EXPECT_EQ(moe.shared_limit, 7.0f);
  EXPECT_EQ(std::get<MoeFfn>(spec.layers[3].ffn).limit, 4.0f);
}

TEST(LatentFamilies, WhatIsNotImplementedIsRefusedByItsKey) {
  struct Bad {
    const char* family;
    json::object changes;
  };
  const Bad kBad[] = {{"kimi_linear", {{"mla_use_nope", false}}},
                      {"kimi_linear", {{"mla_use_output_gate", true}}},
                      {"kimi_linear", {{"attn_res_block_size", 4}}},
                      {"kimi_linear", {{"hidden_act", "situ"}}},
                      {"ling_3", {{"use_mla_nope", true}}},
                      {"ling_3", {{"mtp_use_kda", true}}},
                      {"ling_3", {{"kda_lower_bound", 1.0}}},
                      {"ling_2", {{"full_attention_type", "gqa"}}},
                      {"ling_2", {{"linear_silu", true}}},
                      {"ling_2", {{"group_norm_size", 7}}},
                      {"ling_2", {{"lightning_slope_mode", "other"}}},
                      {"ling_2",
                       {{"partial_rotary_factor", 0.5},
                        {"rope_parameters",
                         {{"rope_theta", 6e6}, {"partial_rotary_factor", 0.25}}}}},
                      {"deepseek_v3", {{"scoring_func", "softmax"}}},
                      {"deepseek_v3", {{"n_group", 3}}},
                      {"deepseek_v3", {{"num_experts_per_token", 3}}}};
  for (const Bad& bad : kBad) {
    EXPECT_THAT(LatentErrorOf(bad.family, bad.changes),
                HasSubstr(fmt::format("\"{}\"", std::string(bad.changes.begin()->key()))))
        << bad.family;
  }
}

TEST(LatentFamilies, ExamplesWithADraftHeadLoadWithNothingLeftOver) {
  for (const char* family : {"qwen3_5", "kimi_linear", "ling_3", "ling_2", "deepseek_v3"}) {
    TestDirectory dir;
    ThreadPool pool(2);
    const std::string drafts = std::string(family) == "qwen3_5" ? "mtp_num_hidden_layers=1"
                               : std::string(family) == "kimi_linear"
                                   ? "first_k_dense_replace=2"
                                   : "num_nextn_predict_layers=1";
    Result<MadeModel> made = MakeModel({.directory = dir.path(),
                                        .family = family,
                                        .shape = {"tiny", drafts},
                                        .seed = 7,
                                        .progress = {}},
                                       pool);
    ASSERT_TRUE(made) << family << ": " << made.error().message;
    Result<LoadedModel> loaded = LoadModel(dir.path());
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(loaded->report.draft.empty(), std::string(family) == "kimi_linear") << family;
    EXPECT_EQ(std::ssize(loaded->opened.checkpoint.tensors()), made->tensors) << family;
  }
}

}  // namespace
}  // namespace braid
