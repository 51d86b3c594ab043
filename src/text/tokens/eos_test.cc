// The ids that end an answer, out of three files.
#include "text/tokens/eos.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_model.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EosTest, TheShippedModelStopsAtBothTokens) {
  const Tokenizer tokenizer = LoadBraidTiny();
  auto ids = EosTokens(kBraidTiny, &tokenizer);
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_THAT(
      *ids, ElementsAre(*tokenizer.TokenToId("<|endoftext|>"), *tokenizer.TokenToId("<|im_end|>")));
}

TEST(EosTest, UnitesAllThreeFiles) {
  const Tokenizer tokenizer = LoadBraidTiny();
  ModelFolder folder;
  EXPECT_THAT(*EosTokens(folder.path(), &tokenizer), ElementsAre());
  folder.Write("config.json", R"({"eos_token_id": 9, "text_config": {"eos_token_id": [5, 9]}})");
  EXPECT_THAT(*EosTokens(folder.path(), nullptr), ElementsAre(5, 9));
  folder.Write("generation_config.json", R"({"eos_token_id": [7, 5]})");
  EXPECT_THAT(*EosTokens(folder.path(), nullptr), ElementsAre(5, 7, 9));
  folder.Write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}})");
  EXPECT_THAT(*EosTokens(folder.path(), nullptr), ElementsAre(5, 7, 9));
  EXPECT_THAT(*EosTokens(folder.path(), &tokenizer), ElementsAre(5, 7, 9, 4066));
  folder.Write("config.json", R"({"eos_token_id": null})");
  folder.Write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_THAT(*EosTokens(folder.path(), &tokenizer), ElementsAre(5, 7));
}

TEST(EosTest, WrongValuesAreNamed) {
  const Tokenizer tokenizer = LoadBraidTiny();
  for (std::string_view value : {"-1", "2147483648", "1.5", "\"x\"", "[1, \"x\"]", "{}"}) {
    ModelFolder folder;
    folder.Write("config.json", R"({"eos_token_id": )" + std::string(value) + "}");
    auto ids = EosTokens(folder.path(), &tokenizer);
    ASSERT_FALSE(ids) << value;
    EXPECT_THAT(ids.error().message, HasSubstr("config.json: eos_token_id is"));
  }
  for (std::string_view value : {"3", "\"not a token\"", "{\"content\": 4}"}) {
    ModelFolder folder;
    folder.Write("tokenizer_config.json", R"({"eos_token": )" + std::string(value) + "}");
    auto ids = EosTokens(folder.path(), &tokenizer);
    ASSERT_FALSE(ids) << value;
    EXPECT_THAT(ids.error().message, HasSubstr("eos_token"));
  }
}

}  // namespace
}  // namespace braid
