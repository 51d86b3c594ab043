// Configs: what is understood, what is harmless, what is refused, and with which words.
#include "model/families/families.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// braid-tiny's config.json with some keys set; a null value takes a key away.
json::object TinyWith(const json::object& changes) {
  Result<json::value> config = ReadJsonFile(BRAID_SOURCE_DIR "/models/braid-tiny/config.json");
  CHECK(config.ok());
  json::object object = config->get_object();
  for (const auto& [key, value] : changes) {
    if (value.is_null()) {
      object.erase(key);
    } else {
      object[key] = value;
    }
  }
  return object;
}

Result<ModelSpec> ReadSpec(const json::object& config) {
  return ParseModelSpec(json::serialize(config), "config.json");
}

std::string ErrorOf(const json::object& changes) {
  Result<ModelSpec> spec = ReadSpec(TinyWith(changes));
  return spec ? "" : spec.error().message;
}

TEST(ReadModelSpec, BraidTinyIsWhatItsConfigSays) {
  Result<ModelSpec> spec = ReadModelSpec(BRAID_SOURCE_DIR "/models/braid-tiny");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->family, "qwen3_5_moe");
  EXPECT_EQ(spec->hidden, 256);
  EXPECT_EQ(spec->vocabulary, 4096);
  EXPECT_EQ(spec->context_tokens_max, 8192);
  EXPECT_TRUE(spec->tied_head);
  EXPECT_EQ(spec->norm.offset, 1.0f);
  ASSERT_EQ(spec->layers.size(), 8u);
  const auto* full = std::get_if<FullAttention>(&spec->layers[3].mixer);
  ASSERT_NE(full, nullptr);
  EXPECT_EQ(full->rotary.dims, 16);
  EXPECT_EQ(full->rotary.theta, 1e6);
  EXPECT_TRUE(full->output_gate);
  const auto* linear = std::get_if<LinearAttention>(&spec->layers[0].mixer);
  ASSERT_NE(linear, nullptr);
  EXPECT_EQ(linear->value_heads, 8);
  const auto* moe = std::get_if<MoeFfn>(&spec->layers[0].ffn);
  ASSERT_NE(moe, nullptr);
  EXPECT_EQ(moe->top_k, 4);
  EXPECT_EQ(moe->shared_width, 128);
}

TEST(ReadModelSpec, KeysMayStandInTextConfigOrBesideIt) {
  json::object inner = TinyWith({});
  inner.erase("architectures");
  inner.erase("rms_norm_eps");
  inner["hidden_size"] = 128;
  const json::object root = {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                             {"model_type", "qwen3_5_moe"},
                             {"hidden_size", 999},
                             {"rms_norm_eps", 1e-5},
                             {"vision_config", {{"depth", 3}}},
                             {"image_token_id", 7},
                             {"text_config", inner}};
  Result<ModelSpec> spec = ReadSpec(root);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->hidden, 128);
  EXPECT_EQ(spec->norm.eps, 1e-5f);
}

TEST(ReadModelSpec, RopeComesNestedOrFlat) {
  Result<ModelSpec> flat = ReadSpec(TinyWith({{"rope_parameters", nullptr},
                                              {"rope_theta", 5e5},
                                              {"partial_rotary_factor", 0.5},
                                              {"rope_scaling", nullptr}}));
  ASSERT_TRUE(flat) << flat.error().message;
  EXPECT_EQ(std::get<FullAttention>(flat->layers[3].mixer).rotary.dims, 32);
  EXPECT_EQ(std::get<FullAttention>(flat->layers[3].mixer).rotary.theta, 5e5);
  EXPECT_EQ(ErrorOf({{"rope_theta", 1e6}}), "");
  EXPECT_THAT(ErrorOf({{"rope_theta", 1e7}}), HasSubstr("differs from rope_parameters.rope_theta"));
}

TEST(ReadModelSpec, AnIntervalStandsInForLayerTypes) {
  Result<ModelSpec> spec =
      ReadSpec(TinyWith({{"layer_types", nullptr}, {"full_attention_interval", 3}}));
  ASSERT_TRUE(spec) << spec.error().message;
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(std::holds_alternative<FullAttention>(spec->layers[i].mixer), (i + 1) % 3 == 0) << i;
  }
}

TEST(ReadModelSpec, WithoutExpertsTheModelIsDense) {
  Result<ModelSpec> spec = ReadSpec(TinyWith({{"num_experts", 0}, {"intermediate_size", 512}}));
  ASSERT_TRUE(spec) << spec.error().message;
  const auto* dense = std::get_if<DenseFfn>(&spec->layers[5].ffn);
  ASSERT_NE(dense, nullptr);
  EXPECT_EQ(dense->width, 512);
}

TEST(ReadModelSpec, KeysOfTrainingSavingAndPicturesAreHarmless) {
  EXPECT_EQ(ErrorOf({{"transformers_version", "9.9"},
                     {"attention_dropout", 0.1},
                     {"initializer_range", 0.5},
                     {"router_aux_loss_coef", 3},
                     {"vision_config", {{"depth", 27}}},
                     {"some_new_switch", false},
                     {"some_new_list", json::array{}},
                     {"some_new_number", 0}}),
            "");
}

struct BadKey {
  json::object changes;
  const char* message;
};

TEST(ReadModelSpec, EveryBadKeyIsNamedWithWhatWouldBeRight) {
  const BadKey kBad[] = {
      {{{"architectures", {"LlamaForCausalLM"}}},
       "\"LlamaForCausalLM\" is not known; known are Qwen3_5MoeForCausalLM, "
       "Qwen3_5MoeForConditionalGeneration"},
      {{{"architectures", nullptr}}, "\"architectures\" is absent"},
      {{{"architectures", 5}}, "must be a list of one name"},
      {{{"hidden_size", nullptr}}, "\"hidden_size\" is missing; it must be an integer from 1"},
      {{{"hidden_size", "256"}},
       "\"hidden_size\" is \"256\"; it must be an integer from 1 to 65536"},
      {{{"hidden_size", 256.5}}, "\"hidden_size\" is 256.5"},
      {{{"hidden_size", 1e18}}, "it must be an integer from 1 to 65536"},
      {{{"hidden_size", int64_t{1} << 60}}, "\"hidden_size\" is 1152921504606846976"},
      {{{"hidden_size", ~uint64_t{0}}}, "\"hidden_size\" is 18446744073709551615"},
      {{{"hidden_size", -1}}, "\"hidden_size\" is -1"},
      {{{"vocab_size", 0}}, "\"vocab_size\" is 0"},
      {{{"num_hidden_layers", 100000}},
       "\"num_hidden_layers\" is 100000; it must be an integer from 1"},
      {{{"num_hidden_layers", 9}}, "\"layer_types\""},
      {{{"layer_types", {"linear_attention"}}}, "a list of 8 words, and has 1"},
      {{{"num_experts", 4096}, {"num_hidden_layers", 512}, {"layer_types", nullptr}},
       "at most 65536 in all"},
      {{{"num_experts_per_tok", 17}},
       "\"num_experts_per_tok\" is 17; it must be an integer from 1 to 16"},
      {{{"num_attention_heads", 5}}, "must be a multiple of num_key_value_heads, 2"},
      {{{"linear_num_value_heads", 6}}, "must be a multiple of linear_num_key_heads, 4"},
      {{{"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e6}}}},
       "\"rope_parameters.rope_type\" is \"yarn\"; it must be one of \"default\", \"mrope\""},
      {{{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}, {"factor", 4.0}}}},
       "\"rope_parameters.factor\""},
      {{{"rope_parameters", {{"rope_type", "default"}}}},
       "\"rope_parameters.rope_theta\" is missing"},
      {{{"rope_parameters", {{"rope_theta", 1e6}, {"partial_rotary_factor", 0.27}}}},
       "must be an even number"},
      {{{"rope_parameters", nullptr}, {"rope_theta", 1e6}, {"rope_scaling", {{"type", "linear"}}}},
       "\"rope_scaling.type\" is \"linear\""},
      {{{"hidden_act", "gelu"}}, "\"hidden_act\" is \"gelu\"; it must be \"silu\""},
      {{{"output_gate_type", "tanh"}}, "\"output_gate_type\""},
      {{{"attention_bias", true}}, "\"attention_bias\" is true, which asks for biases"},
      {{{"layer_scale", true}}, "\"layer_scale\""},
      {{{"quantization_config", {{"quant_method", "bitsandbytes"}}}}, "known are \"fp8\""},
      {{{"quantization_config", {{"quant_method", "awq"}, {"bits", 3}}}}, "it must be 4"},
      {{{"attn_output_gate", "yes"}}, "it must be true or false"},
      {{{"rms_norm_eps", 2}}, "\"rms_norm_eps\" is 2; it must be a number"},
      {{{"logit_softcap", 30.0}}, "\"logit_softcap\" is 30: this key is not known"},
      {{{"text_config", 3}}, "\"text_config\" is an integer"},
  };
  for (const BadKey& bad : kBad) {
    EXPECT_THAT(ErrorOf(bad.changes), AllOf(HasSubstr("config.json"), HasSubstr(bad.message)))
        << json::serialize(bad.changes);
  }
}

TEST(ReadModelSpec, AllProblemsAreListedAtOnce) {
  const std::string error =
      ErrorOf({{"hidden_size", 0}, {"vocab_size", "x"}, {"logit_softcap", 30.0}});
  EXPECT_THAT(error, AllOf(HasSubstr("\"hidden_size\""), HasSubstr("\"vocab_size\""),
                           HasSubstr("\"logit_softcap\"")));
}

TEST(ReadModelSpec, SizesThatAreEachPossibleMayBeTooMuchTogether) {
  const std::string error = ErrorOf({{"hidden_size", 65536},
                                     {"num_experts", 128},
                                     {"moe_intermediate_size", 262144},
                                     {"num_hidden_layers", 512},
                                     {"layer_types", nullptr}});
  EXPECT_THAT(error, HasSubstr("parameters; at most"));
}

TEST(ReadModelConfig, ADirectoryIsReadWithTheFormatThatIsNamedBesideItsConfig) {
  TestDirectory dir;
  dir.Write("config.json", json::serialize(TinyWith({})));
  dir.Write("hf_quant_config.json",
            R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16}})");
  Result<ModelSpec> both = ReadModelConfig(dir.path());
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->quantization.method, "modelopt");
  Result<ModelSpec> alone = ReadModelConfig(dir.path() + "/config.json");
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->quantization.method, "");
  EXPECT_EQ(alone->hidden, both->hidden);
}

TEST(ReadModelSpec, ADirectoryWithoutAConfigIsExplained) {
  TestDirectory dir;
  Result<ModelSpec> gone = ReadModelSpec(dir.path() + "/gone");
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("not a directory; a model is a directory"));
  Result<ModelSpec> empty = ReadModelSpec(dir.path());
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().message, HasSubstr("config.json: no such file"));
  dir.Write("config.json", std::string((1 << 20) + 1, ' '));
  EXPECT_THAT(ReadModelSpec(dir.path()).error().message, HasSubstr("1048576"));
  for (const char* text : {"", "{", "[]", "{\"architectures\": [\"A\"], \"architectures\": []}"}) {
    dir.Write("config.json", text);
    Result<ModelSpec> spec = ReadModelSpec(dir.path());
    ASSERT_FALSE(spec) << text;
    EXPECT_THAT(spec.error().message, HasSubstr("config.json")) << text;
  }
  dir.Write("config.json", std::string("{\"a\":\"").append(2 << 20, 'x').append("\"}"));
  Result<ModelSpec> large = ReadModelSpec(dir.path());
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("at most 1048576"));
}

}  // namespace
}  // namespace braid
