// The three forms of log-probabilities.
#include "server/dialects/logprob_json.h"

#include <gtest/gtest.h>

#include <limits>

namespace braid {
namespace {

class LogprobJsonTest : public testing::Test {
 protected:
  LogprobJsonTest() : tokenizer_(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny")) {}
  TokenId Id(std::string_view text) const { return tokenizer_.Encode(text, false)->front(); }
  Tokenizer tokenizer_;
};

TEST_F(LogprobJsonTest, ChatEntriesCarryBytesAndSoManyAlternatives) {
  TokenId hello = Id("Hello"), world = Id(" the");
  TokenLogprob entry{hello, -0.5f, {{hello, -0.5f}, {world, -1.5f}}};
  json::object out = ChatLogprobs(&tokenizer_, std::span(&entry, 1), 1);
  json::object first = out["content"].as_array()[0].as_object();
  EXPECT_EQ(first["token"], "Hello");
  EXPECT_EQ(first["logprob"], -0.5);
  EXPECT_EQ(first["bytes"], (json::array{72, 101, 108, 108, 111}));
  EXPECT_EQ(first["top_logprobs"].as_array().size(), 1u);
}

TEST_F(LogprobJsonTest, LegacyRowsStartWithNullAndShowTheChosenToken) {
  LegacyLogprobs legacy(&tokenizer_, 1);
  TokenId hello = Id("Hello"), world = Id(" the");
  legacy.AddFirst(hello, 0);
  legacy.Add({world, -3.0f, {{hello, -0.25f}}}, 5);
  json::object out = legacy.Take();
  EXPECT_EQ(out["tokens"], (json::array{"Hello", " the"}));
  EXPECT_EQ(out["token_logprobs"], (json::array{nullptr, -3.0}));
  EXPECT_EQ(out["text_offset"], (json::array{0, 5}));
  json::object top{{"Hello", -0.25}, {" the", -3.0}};
  EXPECT_EQ(out["top_logprobs"], (json::array{nullptr, top}));
}

TEST_F(LogprobJsonTest, PromptEntriesAreKeyedByIdAndRankOnlyWhatIsKnown) {
  TokenLogprob entry{7, -3.0f, {{5, -0.25f}}};
  json::array out = PromptLogprobs(&tokenizer_, std::span(&entry, 1), 1);
  EXPECT_TRUE(out[0].is_null());
  json::object& position = out[1].as_object();
  EXPECT_EQ(position["5"].as_object()["rank"], 1);
  EXPECT_TRUE(position["7"].as_object()["rank"].is_null());
  EXPECT_EQ(position["7"].as_object()["logprob"], -3.0);
}

TEST_F(LogprobJsonTest, InfinitiesAndBrokenBytesHaveAPlainForm) {
  TokenId half = Id("🜲");
  EXPECT_EQ(TokenName(&tokenizer_, half).substr(0, 8), "bytes:\\x");
  EXPECT_EQ(TokenName(nullptr, 7), "token_id:7");
  TokenLogprob entry{half, -std::numeric_limits<float>::infinity(), {}};
  json::object out = ChatLogprobs(&tokenizer_, std::span(&entry, 1), 0);
  EXPECT_EQ(out["content"].as_array()[0].as_object()["logprob"], -9999.0);
}

}  // namespace
}  // namespace braid
