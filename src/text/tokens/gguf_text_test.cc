// A tokenizer, end tokens and a chat template out of metadata, and what is refused by key.
#include "text/tokens/gguf_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "text/tokens/word_split.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

json::object Metadata() {
  // Bytes a, b and c, the word "ab", an unused id, two control tokens and a user-defined one.
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", WordSplits().front().name},
          {"tokenizer.ggml.tokens", {"a", "b", "c", "ab", "unused", "<s>", "</s>", "<u>"}},
          {"tokenizer.ggml.token_type", {1, 1, 1, 1, 5, 3, 3, 4}},
          {"tokenizer.ggml.merges", {"a b"}},
          {"tokenizer.ggml.bos_token_id", 5},
          {"tokenizer.ggml.eos_token_id", 6}};
}

GgufText ReadText(const json::object& metadata) {
  Result<std::optional<GgufText>> text = ReadGgufText(metadata);
  CHECK(text && *text, "{}", text ? "no tokenizer" : text.error().message);
  return **std::move(text);
}

std::vector<TokenId> Encode(const GgufText& text, std::string_view words, bool special) {
  Result<std::vector<TokenId>> ids = text.tokenizer.Encode(words, special);
  CHECK(ids, "{}", ids.error().message);
  return *ids;
}

TEST(GgufText, NoTokenizerIsNotAnError) {
  const Result<std::optional<GgufText>> text = ReadGgufText({});
  ASSERT_TRUE(text);
  EXPECT_FALSE(text->has_value());
  const Result<std::optional<GgufText>> said =
      ReadGgufText({{"tokenizer.ggml.model", "none"}, {"general.name", "x"}});
  ASSERT_TRUE(said.ok());
  EXPECT_FALSE(said->has_value());
}

TEST(GgufText, WordsAreMergedAndAddedTokensAreWhole) {
  const GgufText text = ReadText(Metadata());
  EXPECT_EQ(Encode(text, "abc", false), (std::vector<TokenId>{3, 2}));
  EXPECT_EQ(Encode(text, "a<u>b", false), (std::vector<TokenId>{0, 7, 1}));
  EXPECT_EQ(text.tokenizer.Decode(std::vector<TokenId>{3, 5, 2, 7}, true), "abc<u>")
      << "only control tokens vanish";
}

TEST(GgufText, TextBeginsWithTheTokenOnlyWhereTheFileAsksForIt) {
  json::object metadata = Metadata();
  EXPECT_EQ(Encode(ReadText(metadata), "a", true), (std::vector<TokenId>{0}));
  metadata["tokenizer.ggml.add_bos_token"] = true;
  EXPECT_EQ(Encode(ReadText(metadata), "a", true), (std::vector<TokenId>{5, 0}));
  EXPECT_EQ(Encode(ReadText(metadata), "a", false), (std::vector<TokenId>{0}));
  metadata["tokenizer.ggml.add_bos_token"] = false;
  EXPECT_EQ(Encode(ReadText(metadata), "a", true), (std::vector<TokenId>{0}));
}

TEST(GgufText, EndTokensAreSortedAndEachOnce) {
  json::object metadata = Metadata();
  metadata["tokenizer.ggml.eot_token_id"] = 2;
  metadata["tokenizer.ggml.eom_token_id"] = 6;
  EXPECT_EQ(ReadText(metadata).eos, (std::vector<TokenId>{2, 6}));
  metadata["tokenizer.ggml.tokens"] = {"a",     "b",   "c",     "<|endoftext|>",
                                       "[EOS]", "<s>", "[EOT]", "<|im_end|>"};
  metadata["tokenizer.ggml.token_type"] = {1, 1, 1, 3, 1, 3, 3, 4};
  metadata["tokenizer.ggml.merges"] = json::array();
  EXPECT_EQ(ReadText(metadata).eos, (std::vector<TokenId>{2, 3, 6}))
      << "by their texts where they are control tokens";
}

TEST(GgufText, TheTemplateKnowsTheSpecialTokens) {
  json::object metadata = Metadata();
  EXPECT_FALSE(ReadText(metadata).chat_template.has_value());
  metadata["tokenizer.ggml.padding_token_id"] = 7;
  metadata["tokenizer.chat_template"] = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}";
  const GgufText text = ReadText(metadata);
  ASSERT_TRUE(text.chat_template.has_value());
  const Result<std::string> rendered = text.chat_template->Render({{"messages", json::array()}});
  ASSERT_TRUE(rendered) << rendered.error().message;
  EXPECT_EQ(*rendered, "<s>|</s>|<u>");
}

TEST(GgufText, KeysOfToolsAreSortedWhereTheWordSplitSaysSo) {
  json::object metadata = Metadata();
  metadata["tokenizer.chat_template"] = "{{ tools | tojson }}";
  const json::value context = {{"tools", {{{"b", 1}, {"a", 2}}}}};
  EXPECT_EQ(*ReadText(metadata).chat_template->Render(context), R"([{"b": 1, "a": 2}])");
  metadata["tokenizer.ggml.pre"] = "kimi-k2";
  EXPECT_EQ(*ReadText(metadata).chat_template->Render(context), R"([{"a": 2, "b": 1}])");
}

TEST(GgufText, WhatIsWrongIsNamedByItsKey) {
  struct Case {
    const char* key;
    json::value value;
    const char* message;
  };
  const Case kCases[] = {
      {"tokenizer.ggml.model", "llama", "is \"llama\"; known is gpt2"},
      {"tokenizer.ggml.model", 3, "is not a text"},
      {"tokenizer.ggml.pre", "nobody", "is \"nobody\"; known are"},
      {"tokenizer.ggml.pre", nullptr, "is missing"},
      {"tokenizer.ggml.merges", "a b", "is not a list"},
      {"tokenizer.ggml.token_type", {1, 1}, "has 2 items and there are 8 tokens"},
      {"tokenizer.ggml.token_type", {1, 1, 1, 1, 5, 3, 3, 7}, "an item 7 of the wrong type"},
      {"tokenizer.ggml.token_type", {0, 1, 1, 1, 5, 3, 3, 4}, "an item 0 of the wrong type"},
      {"tokenizer.ggml.tokens", {"a", "a", "c", "ab", "u", "x", "y", "z"}, "has \"a\" twice"},
      {"tokenizer.ggml.tokens", {"a", 2, "c", "ab", "u", "x", "y", "z"}, "an item 1"},
      {"tokenizer.ggml.eos_token_id", 8, "is 8, expected an id below 8"},
      {"tokenizer.ggml.eos_token_id", -1, "is -1, expected an id below 8"},
      {"tokenizer.ggml.bos_token_id", "x", "expected an id below 8"},
  };
  for (const Case& c : kCases) {
    json::object metadata = Metadata();
    metadata[c.key] = c.value;
    const auto text = ReadGgufText(metadata);
    ASSERT_FALSE(text) << c.key << ": " << c.message;
    EXPECT_THAT(text.error().message, HasSubstr(c.message));
    EXPECT_THAT(text.error().message, HasSubstr("tokenizer.ggml."));
  }
}

}  // namespace
}  // namespace braid
