// Where a model's tokenizer, template and ends of answers come from, and that wrong files are
// errors.
#include "engine/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kTinyModel = BRAID_SOURCE_DIR "/models/braid-tiny";

// The named files of braid-tiny.
void LinkFiles(const TestDirectory& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::filesystem::create_symlink(kTinyModel + "/" + name, directory.path() + "/" + name);
  }
}

TEST(ModelTextFiles, ADirectoryHasThemBesideTheWeights) {
  const auto text = ReadModelText(kTinyModel);
  ASSERT_TRUE(text) << text.error().message;
  ASSERT_TRUE(text->tokenizer && text->chat);
  EXPECT_THAT(text->chat->Source(), HasSubstr("<think>"));
  EXPECT_THAT(text->eos, ElementsAre(4064, 4066));
}

TEST(ModelTextFiles, WhatIsNotThereIsLeftOut) {
  const TestDirectory none;
  auto text = ReadModelText(none.path());
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_FALSE(text->tokenizer || text->chat);
  EXPECT_THAT(text->eos, IsEmpty());
  const TestDirectory no_chat;
  LinkFiles(no_chat, {"tokenizer.json", "generation_config.json"});
  text = ReadModelText(no_chat.path());
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_TRUE(text->tokenizer);
  EXPECT_FALSE(text->chat);
  EXPECT_THAT(text->eos, ElementsAre(4064, 4066));
  // A template alone is of no use.
  const TestDirectory no_tokenizer;
  LinkFiles(no_tokenizer, {"chat_template.jinja"});
  text = ReadModelText(no_tokenizer.path());
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_FALSE(text->tokenizer || text->chat);
}

TEST(ModelTextFiles, WrongFilesAreErrorsThatNameThem) {
  const TestDirectory chat;
  LinkFiles(chat, {"tokenizer.json"});
  chat.Write("chat_template.jinja", "{% if %}");
  EXPECT_THAT(ReadModelText(chat.path()).error().message,
              HasSubstr("the chat template does not parse"));
  const TestDirectory tokenizer;
  tokenizer.Write("tokenizer.json", "{}");
  EXPECT_FALSE(ReadModelText(tokenizer.path()));
  const TestDirectory metadata;
  metadata.Write("gguf_tokenizer.json", "[]");
  EXPECT_EQ(ReadModelText(metadata.path()).error().message,
            metadata.path() + "/gguf_tokenizer.json: is no JSON object");
  metadata.Write("gguf_tokenizer.json", R"({"tokenizer.ggml.model": "abacus"})");
  EXPECT_THAT(ReadModelText(metadata.path()).error().message,
              ::testing::StartsWith(metadata.path() + ": "));
  EXPECT_THAT(ReadModelText("/nowhere/model").error().message, HasSubstr("/nowhere/model"));
}

}  // namespace
}  // namespace braid
