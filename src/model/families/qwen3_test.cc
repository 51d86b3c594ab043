// Qwen3: the published shapes, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/thread_pool.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/test_loaded_model.h"
#include "model/writing/make_model.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

// The published config.json of Qwen3-30B-A3B, with some keys set.
Result<ModelSpec> Published(const json::object& changes) {
  json::object config = json::parse(R"({
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
    "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})")
                            .as_object();
  for (const auto& [key, value] : changes) config[key] = value;
  return ParseModelSpec(json::serialize(config), "config.json");
}

TEST(Qwen3, ThePublishedShapeIsRead) {
  const Result<ModelSpec> spec = Published({});
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->family, "qwen3");
  EXPECT_EQ(spec->norm.offset, 0.0f);
  EXPECT_FALSE(spec->draft);
  ASSERT_EQ(spec->layers.size(), 48u);
  for (const LayerSpec& layer : spec->layers) {
    const auto* mixer = std::get_if<FullAttention>(&layer.mixer);
    ASSERT_NE(mixer, nullptr);
    EXPECT_EQ(mixer->rotary.dims, 128);
    EXPECT_TRUE(mixer->qk_norm);
    EXPECT_FALSE(mixer->output_gate);
    const auto* moe = std::get_if<MoeFfn>(&layer.ffn);
    ASSERT_NE(moe, nullptr);
    EXPECT_EQ(moe->shared_width, 0);
    EXPECT_TRUE(moe->router.renormalise);
  }
  // 30.5 billion parameters, of which a token uses 3.0 beside the embedding.
  const ParameterCount counts = ParametersOf(*spec);
  EXPECT_NEAR(static_cast<double>(counts.total), 30.53e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(counts.active), 3.04e9, 0.01e9);
}

TEST(Qwen3, ADenseModelHasNoExperts) {
  const Result<ModelSpec> spec =
      Published({{"architectures", {"Qwen3ForCausalLM"}}, {"num_experts", nullptr}});
  ASSERT_TRUE(spec) << spec.error().message;
  const auto* dense = std::get_if<DenseFfn>(&spec->layers[0].ffn);
  ASSERT_NE(dense, nullptr);
  EXPECT_EQ(dense->width, 6144);
}

TEST(Qwen3, WhatWouldChangeTheMathematicsIsRefusedByName) {
  const std::pair<json::object, const char*> kCases[] = {
      {{{"use_sliding_window", true}}, "use_sliding_window"},
      {{{"attention_bias", true}}, "attention_bias"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}, "rope_scaling"},
      {{{"layer_types", json::array(48, "sliding_attention")}}, "layer_types"},
      {{{"num_key_value_heads", 5}}, "num_attention_heads"},
      {{{"shared_expert_intermediate_size", 512}}, "shared_expert_intermediate_size"},
  };
  for (const auto& [changes, key] : kCases) {
    const Result<ModelSpec> spec = Published(changes);
    ASSERT_FALSE(spec) << key;
    EXPECT_THAT(spec.error().message, HasSubstr(key));
  }
}

TEST(Qwen3, AMadeModelLoads) {
  TestDirectory dir;
  ThreadPool pool(2);
  const Result<MadeModel> made = MakeModel(
      {.directory = dir.path(), .family = "qwen3", .shape = {"tiny"}, .seed = 3, .progress = {}},
      pool);
  ASSERT_TRUE(made) << made.error().message;
  const Result<LoadedModel> model = LoadModel(dir.path());
  ASSERT_TRUE(model) << model.error().message;
}

}  // namespace
}  // namespace braid
