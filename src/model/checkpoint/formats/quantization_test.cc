// What quantization_config may say, and which modules a list of exceptions names.
#include "model/checkpoint/formats/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "model/checkpoint/formats/storage_format.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kEnough = 1'000'000;

bool Ignores(const QuantizationSpec& quantization, std::string_view module) {
  int64_t steps_left = kEnough;
  return IsIgnored(quantization, module, steps_left);
}

bool Matches(std::string_view pattern, std::string_view text) {
  int64_t steps_left = kEnough;
  return MatchesPattern(pattern, text, steps_left);
}

struct Reading {
  QuantizationSpec quantization;
  std::string problem;
};

Reading Read(const std::string& quantization_config) {
  Result<HfConfig> config = HfConfig::Parse(
      R"({"architectures": ["X"], "quantization_config": )" + quantization_config + "}", "c");
  CHECK(config, "{}", config.error().message);
  Reading reading{.quantization = ReadQuantization(*config), .problem = {}};
  if (const Status status = config->Finish(); !status) reading.problem = status.error().message;
  return reading;
}

TEST(Quantization, EveryMethodNamesItsFormats) {
  struct Known {
    const char* text;
    std::vector<const StorageFormat*> formats;
  };
  const Known kKnown[] = {
      {R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
           "activation_scheme": "dynamic", "scale_fmt": "ue8m0"})",
       {&kFp8Blocks}},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128],
           "routed_experts_quant_method": "mxfp4"})",
       {&kFp8Blocks, &kMxfp4Inverse}},
      {R"({"quant_method": "fp8"})", {&kFp8Scaled}},
      {R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups":
           {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float",
            "strategy": "channel"}, "input_activations": {"num_bits": 8}}}})",
       {&kFp8Scaled}},
      {R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups":
           {"a": {"format": "pack-quantized", "weights": {"num_bits": 4, "group_size": 32}},
            "b": {"format": "nvfp4-pack-quantized", "weights": {"num_bits": 4}}}})",
       {&kInt4Packed, &kNvfp4Packed}},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})", {&kNvfp4ModelOpt}},
      {R"({"quant_method": "mxfp4"})", {&kMxfp4Blocks, &kMxfp4Packed}},
      {R"({"quant_method": "awq", "bits": 4, "version": "gemm"})", {&kAwq}},
      {R"({"quant_method": "gptq", "bits": 4, "desc_act": true})", {&kGptq}},
  };
  for (const Known& known : kKnown) {
    const Reading reading = Read(known.text);
    EXPECT_EQ(reading.problem, "") << known.text;
    EXPECT_EQ(reading.quantization.formats, known.formats) << known.text;
  }
  EXPECT_TRUE(Read(R"({"quant_method": "gptq"})").quantization.zero_off_by_one);
  EXPECT_FALSE(Read(R"({"quant_method": "gptq", "checkpoint_format": "gptq_v2"})")
                   .quantization.zero_off_by_one);
  EXPECT_FALSE(
      Read(R"({"quant_method": "gptq", "format": "gptq_v2"})").quantization.zero_off_by_one);
  EXPECT_TRUE(
      Read(R"({"quant_method": "gptq", "format": "gptq_v2", "checkpoint_format": "gptq"})")
          .quantization.zero_off_by_one);
}

TEST(Quantization, UnknownMethodsAndWidthsAreErrorsWithTheirKey) {
  const std::pair<const char*, const char*> kBad[] = {
      {R"({"quant_method": "hqq"})", "\"quantization_config.quant_method\" is \"hqq\"; known are"},
      {R"({"bits": 4})", "quant_method\" is \"\""},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", "quantization_config.fmt"},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})", "weight_block_size"},
      {R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", "weight_block_size"},
      {R"({"quant_method": "awq", "version": "gemv"})", "\"gemm\""},
      {R"({"quant_method": "awq", "format": "gemv"})", "quantization_config.format"},
      {R"({"quant_method": "gptq", "format": "marlin"})", "quantization_config.format"},
      {R"({"quant_method": "gptq", "bits": 3})", "bits\" is 3; it must be 4 or 8"},
      {R"({"quant_method": "awq", "bits": 8})", "bits\" is 8; it must be 4"},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A8"})", "quant_algo"},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})", "config_groups"},
      {R"({"quant_method": "compressed-tensors", "format": "marlin-24",
           "config_groups": {"g": {"weights": {}}}})",
       "known are float-quantized"},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
           "config_groups": {"g": {"weights": {"num_bits": 3}}}})",
       "num_bits\" is 3; with \"pack-quantized\" it must be 4 or 8"},
      {R"({"quant_method": "compressed-tensors", "format": "float-quantized",
           "sparsity_config": {"format": "sparse-24-bitmask"},
           "config_groups": {"g": {"weights": {"num_bits": 8}}}})",
       "sparsity_config.format"},
      {R"({"quant_method": "fp8", "ignored_layers": "lm_head"})", "a list of names"},
      {R"([1])", "must be an object"},
  };
  for (const auto& [text, message] : kBad) EXPECT_THAT(Read(text).problem, HasSubstr(message));
}

TEST(Quantization, AListOfExceptionsNamesModulesByNameTailOrPattern) {
  const QuantizationSpec q{.method = "fp8",
                           .ignored = {"lm_head", "mlp.gate", "model.layers.3", "vision*",
                                       "re:.*self_attn\\.(q|k)_proj$", "re:model\\.mtp\\."}};
  for (const char* name : {"lm_head", "model.layers.0.mlp.gate", "model.layers.3.mlp.up_proj",
                           "vision_tower.x", "model.layers.1.self_attn.q_proj", "model.mtp.fc"}) {
    EXPECT_TRUE(Ignores(q, name)) << name;
  }
  for (const char* name : {"model.layers.0.mlp.gate_proj", "model.layers.30.mlp.up_proj",
                           "model.layers.1.self_attn.v_proj", "a.model.mtp.fc", "my_lm_head"}) {
    EXPECT_FALSE(Ignores(q, name)) << name;
  }
}

TEST(Patterns, MatchAsRegularExpressionsDo) {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  const Case kCases[] = {{"a.c", "abc", true},
                         {"a\\.c", "abc", false},
                         {"a*b$", "aaab", true},
                         {"a+b$", "b", false},
                         {"(ab)+$", "ababab", true},
                         {"(ab)+$", "ababa", false},
                         {"x(a|bc)?y$", "xbcy", true},
                         {"x(a|bc)?y$", "xy", true},
                         {"[0-9]+$", "0123", true},
                         {"[^.]+$", "a.b", false},
                         {"\\d+\\.\\w+$", "12.a_", true},
                         {"(?:a|b)*c$", "ababc", true},
                         {"^abc", "abcd", true},
                         {"b", "abc", false},
                         {"(", "(", false},
                         {"[a", "a", false}};
  for (const Case& c : kCases) EXPECT_EQ(Matches(c.pattern, c.text), c.matches) << c.pattern;
}

TEST(Patterns, APatternThatBacktracksTooLongMatchesNothing) {
  EXPECT_FALSE(Matches("(a*)*(a*)*(a*)*b$", std::string(900, 'a')));
  EXPECT_FALSE(Matches(std::string(5000, '('), "a"));
  // Nested as deep as the budget allows, on a stack of 8 MB.
  const std::string deep = std::string(500, '(') + "." + std::string(500, ')') + "*";
  EXPECT_FALSE(Matches(deep, std::string(1000, 'a')));
}

// A list within its steps is compared as ever; one that needs more says so and stops.
TEST(Quantization, AListOfExceptionsHasStepsForAllModulesTogether) {
  QuantizationSpec q{.method = "fp8", .ignored = std::vector<std::string>(10, "re:.*gate$")};
  const std::string module = "model.layers.0.mlp.up_proj";
  int64_t steps_left = kEnough;
  EXPECT_FALSE(IsIgnored(q, module, steps_left));
  const int64_t steps = kEnough - steps_left;
  EXPECT_GT(steps, 10 * static_cast<int64_t>(module.size()));
  EXPECT_LT(steps, 10 * 10 * static_cast<int64_t>(module.size()));
  steps_left = 2 * steps;
  for (int64_t left : {steps, int64_t{0}}) {
    EXPECT_FALSE(IsIgnored(q, module, steps_left));
    EXPECT_EQ(steps_left, left);
  }
  EXPECT_FALSE(IsIgnored(q, "gate", steps_left)) << "it would be found with more steps";
  EXPECT_LT(steps_left, 0);

  q.ignored.assign(100, "lm_head");
  steps_left = kEnough;
  EXPECT_FALSE(IsIgnored(q, module, steps_left));
  EXPECT_EQ(steps_left, kEnough - 100) << "an entry that is no pattern takes a step";
}

// The text of a pattern is searched for the ends of groups and classes at each step.
TEST(Patterns, LongGroupsAndClassesTakeMoreSteps) {
  const auto steps = [](const std::string& pattern) {
    int64_t steps_left = kEnough;
    MatchesPattern(pattern, std::string(50, 'a'), steps_left);
    return kEnough - steps_left;
  };
  const std::string many(800, 'b');
  EXPECT_GT(steps(".*(" + many + ")"), 50 * 800 / 16);
  EXPECT_GT(steps("[a" + many + "]*c"), 50 * 800 / 16);
  EXPECT_LT(steps(".*" + many), 50 * 800 / 16);
}

}  // namespace
}  // namespace braid
