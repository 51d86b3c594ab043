// The prompt of a body as the server would make it.
#include "cli/command/prompt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PromptFiles : public ::testing::Test {
 protected:
  PromptFiles() : model_(ReadPromptModel(kTiny)) { CHECK(model_, "{}", model_.error().message); }
  Result<PromptSide> Read(const std::string& body) const {
    directory_.Write("body.json", body);
    return ReadPromptFile(directory_.path() + "/body.json", *model_);
  }
  const std::string kTiny = BRAID_SOURCE_DIR "/models/braid-tiny";
  const TestDirectory directory_;
  const Result<PromptModel> model_;
};

TEST_F(PromptFiles, TextIdsAndChatsArePrompts) {
  EXPECT_EQ(model_->spec.vocabulary, 4096);
  const auto text = Read(R"({"prompt": "Once upon"})");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->text, "Once upon");
  EXPECT_EQ(text->tokens, *model_->text.tokenizer->Encode("Once upon", true));
  const auto ids = Read(R"({"prompt": [300, 17], "cache_salt": "salt"})");
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_THAT(ids->tokens, ElementsAre(300, 17));
  EXPECT_EQ(ids->text, model_->text.tokenizer->Decode(std::vector<TokenId>{300, 17}, false));
  EXPECT_EQ(ids->request.cache_salt, "salt");
  const auto chat = Read(R"({"messages": [{"role": "user", "content": "Hello"}]})");
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_THAT(chat->text, HasSubstr("<|im_start|>user\nHello"));
  EXPECT_EQ(chat->tokens, *model_->text.tokenizer->Encode(chat->text, false));
}

TEST_F(PromptFiles, WrongBodiesAreErrorsThatNameTheFile) {
  for (const auto& [body, said] : std::vector<std::pair<const char*, const char*>>{
           {"{", "not valid JSON"},
           {R"({"prompt": 3})", "prompt"},
           {R"({"prompt": [99999]})", "prompt"},
           {R"({"prompt": ["a", "b"]})", "has 2 prompts; give one of them in a file of its own"},
           {R"({"messages": []})", "messages"}}) {
    const auto read = Read(body);
    ASSERT_FALSE(read) << body;
    EXPECT_THAT(read.error().message, HasSubstr("body.json"));
    EXPECT_THAT(read.error().message, HasSubstr(said));
  }
  EXPECT_THAT(ReadPromptFile("/nowhere/a.json", *model_).error().message,
              HasSubstr("/nowhere/a.json"));
}

TEST_F(PromptFiles, ChatsNeedATemplateAndEverythingATokenizer) {
  const TestDirectory bare;
  for (const char* name : {"config.json", "tokenizer.json"}) {
    std::filesystem::create_symlink(kTiny + "/" + name, bare.path() + "/" + name);
  }
  const auto model = ReadPromptModel(bare.path());
  ASSERT_TRUE(model) << model.error().message;
  directory_.Write("chat.json", R"({"messages": [{"role": "user", "content": "Hello"}]})");
  EXPECT_THAT(ReadPromptFile(directory_.path() + "/chat.json", *model).error().message,
              HasSubstr("the model has no chat template"));
  std::filesystem::remove(bare.path() + "/tokenizer.json");
  EXPECT_THAT(ReadPromptModel(bare.path()).error().message, HasSubstr("has no tokenizer"));
}

}  // namespace
}  // namespace braid
