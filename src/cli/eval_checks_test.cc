// The checks of the evaluation sets, case by case.
#include "cli/eval_checks.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

EvalItem ItemOf(const std::string& check, const std::string& answer) {
  EvalItem item;
  item.check = check;
  item.answer = *ParseJson(answer, "test");
  return item;
}

bool Right(const std::string& check, const std::string& answer, std::string_view reply) {
  return IsRight(ItemOf(check, answer), SplitReply(reply));
}

TEST(EvalChecks, ContentIsWhatFollowsTheLastThought) {
  EXPECT_EQ(SplitReply("a</think>b</think>\n\n c \n").content, "c");
  EXPECT_EQ(SplitReply("no thought").content, "no thought");
  EXPECT_EQ(SplitReply("before <tool_call>{}</tool_call> after").content, "before");
}

TEST(EvalChecks, ExactComparesTheWholeContent) {
  EXPECT_TRUE(Right("exact", "\"1, 2\"", "<think>\nhm\n</think>\n\n1, 2\n"));
  EXPECT_FALSE(Right("exact", "\"1, 2\"", "1, 2, 3"));
}

TEST(EvalChecks, NumberTakesTheLastAnswer) {
  EXPECT_TRUE(Right("number", "-7", "The answer is 3. No. The answer is -7."));
  EXPECT_FALSE(Right("number", "3", "The answer is 3. No. The answer is 4."));
  EXPECT_FALSE(Right("number", "3", "The answer is 3"));
  EXPECT_FALSE(Right("number", "3", "The answer is 3, sir."));
  EXPECT_FALSE(Right("number", "3", "</think>It is 3."));
}

TEST(EvalChecks, ContainsWantsEveryPart) {
  EXPECT_TRUE(Right("contains", R"(["fox", "meadow"])", "a fox in the meadow"));
  EXPECT_FALSE(Right("contains", R"(["fox", "meadow"])", "a fox"));
  EXPECT_TRUE(Right("contains", "\"fox\"", "a fox"));
}

TEST(EvalChecks, ToolCallsCompareAsJsonAndInOrder) {
  const std::string call = R"({"name": "add", "arguments": {"a": 1, "b": "x"}})";
  const std::string same = R"({"arguments": {"b": "x", "a": 1.0}, "name": "add"})";
  EXPECT_TRUE(Right("tool_call", call, "<tool_call>\n" + same + "\n</tool_call>"));
  EXPECT_FALSE(Right("tool_call", call, "<tool_call>{bad}</tool_call>"));
  EXPECT_FALSE(Right("tool_call", call, same));
  const std::string other = R"({"name": "sub", "arguments": {}})";
  const std::string both =
      "<tool_call>" + call + "</tool_call><tool_call>" + other + "</tool_call>";
  EXPECT_TRUE(Right("tool_call", "[" + call + "," + other + "]", both));
  EXPECT_FALSE(Right("tool_call", "[" + other + "," + call + "]", both));
  EXPECT_FALSE(Right("tool_call", call, both));
}

TEST(EvalChecks, OtherChecksFailWhenAToolIsCalled) {
  EXPECT_FALSE(Right("no_tool_call", "\"ok\"", "ok <tool_call>{}</tool_call>"));
  EXPECT_TRUE(Right("no_tool_call", "\"ok\"", "ok"));
  EXPECT_FALSE(Right("exact", "\"ok\"", "ok <tool_call>broken</tool_call>"));
}

TEST(EvalChecks, ItemsWithoutWhatTheirCheckNeedsAreRefused) {
  const auto parse = [](const std::string& text) {
    return ParseEvalItem(ParseJson(text, "test")->as_object(), "f:1");
  };
  EXPECT_TRUE(parse(R"({"check": "number", "answer": 3, "messages": [{}], "thinking": false})"));
  EXPECT_TRUE(parse(R"({"check": "perplexity", "answer": null, "text": "abc"})"));
  EXPECT_FALSE(parse(R"({"check": "perplexity", "answer": null})"));
  EXPECT_FALSE(parse(R"({"check": "number", "answer": "3", "messages": []})"));
  EXPECT_FALSE(parse(R"({"check": "guess", "answer": 3, "messages": []})"));
  EXPECT_FALSE(parse(R"({"check": "exact", "answer": "3"})"));
  EXPECT_FALSE(parse(R"({"answer": 3, "messages": []})"));
}

}  // namespace
}  // namespace braid
