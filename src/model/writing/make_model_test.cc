// Made checkpoints load, are functions of their request, and are refused when the request is wrong.
#include "model/writing/make_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/formats/export.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/families/published.h"
#include "model/writing/convert.h"
#include "model/loading/test_loaded_model.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

Result<MadeModel> Make(const std::string& directory, std::vector<std::string> shape,
                       int threads = 2, int64_t shard_bytes_max = int64_t{4} << 30) {
  ThreadPool pool(threads);
  return MakeModel({.directory = directory,
                    .family = "qwen3_5_moe",
                    .shape = std::move(shape),
                    .seed = 7,
                    .shard_bytes_max = shard_bytes_max,
                    .progress = {}},
                   pool);
}

TEST(MakeModel, WhatItWritesLoadsWithNothingLeftOver) {
  TestDirectory dir;
  Result<MadeModel> made = Make(dir.path(), {"tiny", "mtp_num_hidden_layers=1"});
  ASSERT_TRUE(made) << made.error().message;
  Result<LoadedModel> loaded = LoadModel(dir.path());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->report.draft.size(), 1u);
  EXPECT_EQ(std::ssize(loaded->opened.checkpoint.tensors()), made->tensors);
  EXPECT_EQ(loaded->opened.checkpoint.total_bytes(), made->bytes);
}

TEST(MakeModel, TheSameRequestGivesTheSameFileWhateverTheThreads) {
  TestDirectory one, two;
  ASSERT_TRUE(Make(one.path(), {"tiny"}, 1));
  ASSERT_TRUE(Make(two.path(), {"tiny"}, 3));
  EXPECT_EQ(one.Read("model.safetensors"), two.Read("model.safetensors"));
  EXPECT_EQ(one.Read("config.json"), two.Read("config.json"));
}

TEST(MakeModel, ShardsHoldTheSameTensors) {
  TestDirectory whole, sharded;
  ASSERT_TRUE(Make(whole.path(), {"tiny"}));
  Result<MadeModel> made = Make(sharded.path(), {"tiny"}, 2, 100'000);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_GT(made->files, 2);
  Result<Checkpoint> a = Checkpoint::Open(whole.path());
  Result<Checkpoint> b = Checkpoint::Open(sharded.path());
  ASSERT_TRUE(a && b);
  ASSERT_EQ(a->tensors().size(), b->tensors().size());
  for (const auto& [name, entry] : a->tensors()) {
    const TensorEntry* other = b->Find(name);
    ASSERT_NE(other, nullptr) << name;
    ASSERT_EQ(entry.bytes, other->bytes) << name;
    EXPECT_EQ(std::memcmp(entry.data, other->data, static_cast<size_t>(entry.bytes)), 0) << name;
  }
}

TEST(MakeModel, WeightsHaveTheScaleThatKeepsInputsOfSizeOneAtSizeOne) {
  TestDirectory dir;
  ASSERT_TRUE(Make(dir.path(), {"tiny", "vocab_size=4096"}));
  Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint);
  const TensorEntry* head = checkpoint->Find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  double sum = 0, squares = 0;
  const int64_t n = head->bytes / 2;
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, head->data + 2 * i, 2);
    sum += FloatOfBf16(bits);
    squares += FloatOfBf16(bits) * FloatOfBf16(bits);
  }
  EXPECT_NEAR(sum / static_cast<double>(n), 0, 0.003);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(n) * 64), 2.5, 0.05);
}

TEST(MakeModel, WritesQuantisedWeightsAsConvertWould) {
  ThreadPool pool(2);
  for (const char* family : {"qwen3_5_moe", "deepseek_v3"}) {
    for (const std::string& name : ExportableFormats()) {
      const ops::WeightFormat format = *ops::FindWeightFormat(name);
      for (const bool head : {false, true}) {
        if (!ops::IsQuantised(format)) continue;
        const TestDirectory dir;
        MakeModelRequest request = {.directory = dir.path() + "/plain",
                                    .family = family,
                                    .shape = {"tiny", "vocab_size=300"},
                                    .seed = 3,
                                    .progress = {}};
        ASSERT_TRUE(MakeModel(request, pool));
        ASSERT_TRUE(ConvertCheckpoint({.from = dir.path() + "/plain",
                                       .to = dir.path() + "/converted",
                                       .weights = format,
                                       .head = head,
                                       .progress = {}},
                                      pool));
        request.directory = dir.path() + "/made";
        request.weights = format;
        request.quantise_head = head;
        ASSERT_TRUE(MakeModel(request, pool));
        Result<Checkpoint> made = Checkpoint::Open(dir.path() + "/made");
        Result<Checkpoint> converted = Checkpoint::Open(dir.path() + "/converted");
        ASSERT_TRUE(made && converted);
        ASSERT_EQ(made->tensors().size(), converted->tensors().size());
        for (const auto& [tensor, entry] : made->tensors()) {
          const TensorEntry* other = converted->Find(tensor);
          ASSERT_NE(other, nullptr) << tensor;
          ASSERT_EQ(entry.shape, other->shape) << tensor;
          ASSERT_TRUE(std::ranges::equal(std::span(entry.data, static_cast<size_t>(entry.bytes)),
                                         std::span(other->data, static_cast<size_t>(other->bytes))))
              << tensor;
        }
        ASSERT_TRUE(LoadModel(dir.path() + "/made"));
      }
    }
  }
}

TEST(MakeModel, MakesPublishedModelsWithOtherSizes) {
  for (const PublishedConfig& published : PublishedConfigs()) {
    if (published.name != "qwen3_5_35b_a3b" && published.name != "kimi_linear_48b_a3b") continue;
    const TestDirectory dir;
    // One layer of each kind where the config lists them, and few, small experts.
    const bool nested = published.json->find("text_config") != std::string_view::npos;
    std::vector<std::string> shape = {std::string(published.name), "hidden_size=64",
                                      "vocab_size=128", "num_experts=3",
                                      "moe_intermediate_size=16"};
    if (nested) {
      for (const char* word : {"num_hidden_layers=1", "layer_types=[\"full_attention\"]",
                               "mtp_num_hidden_layers=0", "num_experts_per_tok=2"}) {
        shape.emplace_back(word);
      }
    } else {
      shape.emplace_back("num_experts_per_token=2");
    }
    const Result<MadeModel> made = Make(dir.path(), shape);
    ASSERT_TRUE(made) << made.error().message;
    Result<LoadedModel> loaded = LoadModel(dir.path());
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(loaded->opened.spec.hidden, 64);
  }
}

TEST(MakeModel, RefusesWhatTheFamilyWouldNotRead) {
  TestDirectory dir;
  Result<MadeModel> unknown_key = Make(dir.path() + "/a", {"tiny", "hiden_size=8"});
  ASSERT_FALSE(unknown_key);
  EXPECT_THAT(unknown_key.error().message, HasSubstr("\"hiden_size\""));
  Result<MadeModel> bad_value = Make(dir.path() + "/b", {"num_hidden_layers=many"});
  ASSERT_FALSE(bad_value);
  EXPECT_THAT(bad_value.error().message, HasSubstr("num_hidden_layers"));
  Result<MadeModel> bad_word = Make(dir.path() + "/c", {"huge"});
  ASSERT_FALSE(bad_word);
  EXPECT_THAT(bad_word.error().message, HasSubstr("tiny, mid"));
  ASSERT_TRUE(Make(dir.path() + "/d", {"tiny"}));
  Result<MadeModel> twice = Make(dir.path() + "/d", {"tiny"});
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr("holds config.json already"));
  ThreadPool pool(1);
  Result<MadeModel> family = MakeModel({.directory = dir.path() + "/e", .family = "gpt2"}, pool);
  ASSERT_FALSE(family);
  EXPECT_THAT(family.error().message, HasSubstr("known are qwen3_5_moe"));
}

}  // namespace
}  // namespace braid
