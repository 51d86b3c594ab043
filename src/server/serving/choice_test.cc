// One answer's way from tokens to deltas, with braid-tiny's tokenizer.
#include "server/serving/choice.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

class ChoiceTest : public testing::Test {
 protected:
  ChoiceTest() : tokenizer_(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny")) {}

  std::vector<TokenId> Encode(std::string_view text) const {
    return *tokenizer_.Encode(text, false);
  }

  // The text token by token through a choice, finished with `reason`; all deltas merged.
  ChoiceDelta Run(const std::vector<TokenId>& tokens, FinishReason reason, bool inside = false) {
    Choice choice(0, &tokenizer_, options_, inside, 0);
    ChoiceDelta all{.first = true};
    for (size_t i = 0; i < tokens.size() && !choice.finished(); ++i) {
      Output output;
      output.tokens = {tokens[i]};
      output.logprobs = {{.token = tokens[i]}};
      if (i + 1 == tokens.size()) output.finish = reason;
      if (auto delta = choice.Add(std::move(output))) all.Merge(*std::move(delta));
    }
    reasoning_tokens_ = choice.reasoning_tokens();
    return all;
  }

  Tokenizer tokenizer_;
  TextOptions options_;
  int32_t reasoning_tokens_ = 0;
};

TEST_F(ChoiceTest, TheTextIsThatOfTheTokens) {
  ChoiceDelta delta = Run(Encode("Grüße, 世界 🌍!"), FinishReason::kLength);
  EXPECT_EQ(delta.text(), "Grüße, 世界 🌍!");
  EXPECT_EQ(delta.finish, FinishReason::kLength);
  EXPECT_EQ(delta.logprobs.size(), delta.tokens.size());
}

TEST_F(ChoiceTest, AStopTokenIsCountedButNotShown) {
  std::vector<TokenId> tokens = Encode("Hello<|im_end|>");
  ChoiceDelta delta = Run(tokens, FinishReason::kStop);
  EXPECT_EQ(delta.text(), "Hello");
  EXPECT_EQ(delta.tokens, tokens);
  EXPECT_EQ(delta.logprobs.size(), tokens.size());
  EXPECT_TRUE(delta.stop_reason.is_null()) << "the client did not name it";

  std::vector<TokenId> named = Encode("Hello world");
  options_.stop_tokens = {named.back()};
  delta = Run(named, FinishReason::kStop);
  EXPECT_EQ(delta.stop_reason, named.back());
  options_.include_stop = true;
  EXPECT_EQ(Run(named, FinishReason::kStop).text(), "Hello world");
}

TEST_F(ChoiceTest, AStopStringEndsTheAnswerBeforeIt) {
  options_.stop = {"never", "wor"};
  ChoiceDelta delta = Run(Encode("Hello big world and more"), FinishReason::kLength);
  EXPECT_EQ(delta.text(), "Hello big ");
  EXPECT_EQ(delta.finish, FinishReason::kStop);
  EXPECT_EQ(delta.stop_reason, "wor");
  options_.include_stop = true;
  EXPECT_EQ(Run(Encode("Hello big world and more"), FinishReason::kLength).text(), "Hello big wor");
}

TEST_F(ChoiceTest, AStopStringEndsNoAnswerBeforeItsLeastTokens) {
  const std::vector<TokenId> tokens = Encode("Stop here, and stop there, and go on.");
  options_.stop = {"top"};
  EXPECT_EQ(Run(tokens, FinishReason::kLength).text(), "S");
  options_.min_tokens = static_cast<int64_t>(Encode("Stop here,").size());
  const ChoiceDelta delta = Run(tokens, FinishReason::kLength);
  EXPECT_EQ(delta.text(), "Stop here, and s");
  EXPECT_EQ(delta.finish, FinishReason::kStop);
  EXPECT_GE(std::ssize(delta.tokens), options_.min_tokens);
  options_.min_tokens = std::ssize(tokens);
  EXPECT_EQ(Run(tokens, FinishReason::kLength).finish, FinishReason::kLength);
}

TEST_F(ChoiceTest, HalfAStopStringIsTextAtTheEnd) {
  options_.stop = {"world peace"};
  ChoiceDelta delta = Run(Encode("Hello world"), FinishReason::kLength);
  EXPECT_EQ(delta.text(), "Hello world");
  EXPECT_EQ(delta.finish, FinishReason::kLength);
}

TEST_F(ChoiceTest, ThinkingIsSeparatedAndStopStringsAreForTheContent) {
  options_.syntax.split_reasoning = true;
  options_.stop = {"5"};
  std::vector<TokenId> tokens = Encode("2 + 3 is 5.\n</think>\n\nThe answer is 5.");
  ChoiceDelta delta = Run(tokens, FinishReason::kLength, true);
  EXPECT_EQ(delta.reasoning(), "2 + 3 is 5.");
  EXPECT_EQ(delta.text(), "The answer is ");
  EXPECT_EQ(delta.finish, FinishReason::kStop);
  EXPECT_GT(reasoning_tokens_, 3);
  EXPECT_LT(reasoning_tokens_, static_cast<int32_t>(tokens.size()) - 3);
}

TEST_F(ChoiceTest, AnUnfinishedCharacterAtTheEndBecomesOneReplacement) {
  std::vector<TokenId> tokens = Encode("🜲");
  ASSERT_GT(tokens.size(), 1u) << "needs a character of several tokens";
  tokens.pop_back();
  EXPECT_EQ(Run(tokens, FinishReason::kLength).text(), "\xEF\xBF\xBD");
}

TEST_F(ChoiceTest, NothingIsShownBeforeThePromptIsScored) {
  Choice choice(0, &tokenizer_, options_, false, 2);
  Output first;
  first.prompt_logprobs = {{.token = 1}};
  EXPECT_FALSE(choice.Add(first));
  Output second;
  second.prompt_logprobs = {{.token = 2}};
  auto delta = choice.Add(second);
  ASSERT_TRUE(delta);
  EXPECT_TRUE(delta->first);
  EXPECT_EQ(delta->prompt_logprobs.size(), 2u);
}

TEST_F(ChoiceTest, EndShowsWhatWasHeldBack) {
  options_.stop = {"lo world"};
  Choice choice(0, &tokenizer_, options_, false, 0);
  Output output;
  output.tokens = Encode("Hello");
  auto delta = choice.Add(std::move(output));
  ASSERT_TRUE(delta);
  ChoiceDelta end = choice.End(FinishReason::kAbort);
  EXPECT_EQ(delta->text() + end.text(), "Hello");
  EXPECT_EQ(end.finish, FinishReason::kAbort);
}

TEST(CountCharacters, CountsCodePoints) {
  EXPECT_EQ(CountCharacters(""), 0);
  EXPECT_EQ(CountCharacters("aß世🌍"), 4);
}

}  // namespace
}  // namespace braid
