// The checks of the evaluation sets, case by case.
#include "cli/eval_checks.h"

#include <gtest/gtest.h>

#include "base/check.h"

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

TEST(EvalChecks, JsonIsComparedByValue) {
  const auto same = [](const char* a, const char* b) {
    return SameJson(*ParseJson(a, "a"), *ParseJson(b, "b"));
  };
  EXPECT_TRUE(same("1", "1.0"));
  EXPECT_TRUE(same("-3", "-3"));
  EXPECT_FALSE(same("1", "2"));
  EXPECT_FALSE(same("1.5", "1"));
  EXPECT_FALSE(same("1", "\"1\""));
  EXPECT_FALSE(same("null", "false"));
  EXPECT_TRUE(same("[1, [2]]", "[1.0, [2]]"));
  EXPECT_FALSE(same("[1, 2]", "[2, 1]"));
  EXPECT_FALSE(same("[1]", "[1, 2]"));
  EXPECT_FALSE(same("{\"a\": 1}", "{\"a\": 1, \"b\": 2}"));
  EXPECT_FALSE(same("{\"a\": 1, \"b\": 2}", "{\"a\": 1}"));
  EXPECT_FALSE(same("{\"a\": 1}", "{\"b\": 1}"));
  EXPECT_FALSE(same("{\"a\": 1}", "{\"a\": 2}"));
}

TEST(EvalChecks, AnItemKeepsWhatItsLineSays) {
  const auto parse = [](const std::string& text) {
    Result<EvalItem> item = ParseEvalItem(ParseJson(text, "test")->as_object(), "f:1");
    CHECK(item, "{}", item.error().message);
    return *std::move(item);
  };
  const EvalItem plain =
      parse(R"({"id": "x", "check": "exact", "answer": "a", "messages": [{"role": "user"}]})");
  EXPECT_EQ(plain.id, "x");
  EXPECT_TRUE(plain.thinking);
  EXPECT_TRUE(plain.tools.is_null());
  EXPECT_EQ(plain.messages.as_array().size(), 1u);
  const EvalItem more = parse(R"({"check": "tool_call", "answer": {"name": "f"}, "messages": [],
                                  "tools": [{}], "thinking": false})");
  EXPECT_FALSE(more.thinking);
  EXPECT_EQ(more.tools.as_array().size(), 1u);
  EXPECT_TRUE(
      parse(R"({"check": "exact", "answer": "a", "messages": [], "thinking": 0})").thinking);
}

TEST(EvalChecks, EachCheckNeedsAnAnswerOfItsType) {
  const struct {
    const char* check;
    std::vector<const char*> good, bad;
  } cases[] = {
      {"exact", {"\"a\""}, {"1", "null", "[\"a\"]"}},
      {"number", {"3", "-3"}, {"\"3\"", "1.5", "null"}},
      {"last_number", {"3", "1.5", "\"3\""}, {"null", "[3]"}},
      {"letter", {"\"B\""}, {"\"\"", "\"BC\"", "2"}},
      {"contains", {"\"a\"", "[\"a\", \"b\"]"}, {"[]", "[1]", "[\"a\", 1]", "1"}},
      {"no_tool_call", {"\"a\"", "[\"a\"]"}, {"[]", "null"}},
      {"tool_call", {"{}", "[]"}, {"\"a\"", "null"}},
  };
  for (const auto& c : cases) {
    const auto parse = [&](const char* answer) {
      const std::string text = std::string(R"({"messages": [], "check": ")") + c.check +
                               R"(", "answer": )" + answer + "}";
      return ParseEvalItem(ParseJson(text, "test")->as_object(), "f:7");
    };
    for (const char* answer : c.good) EXPECT_TRUE(parse(answer)) << c.check << " " << answer;
    for (const char* answer : c.bad) {
      ASSERT_FALSE(parse(answer)) << c.check << " " << answer;
      EXPECT_EQ(parse(answer).error().message.rfind("f:7: ", 0), 0u);
    }
  }
}

TEST(EvalChecks, RepliesEndSomewhere) {
  EXPECT_TRUE(Right("tool_call", "[]", "nothing to call"));
  EXPECT_FALSE(Right("tool_call", "{}", "<tool_call>{}")) << "it is not closed";
  EXPECT_EQ(SplitReply("<tool_call>{}</tool_call> <tool_call>[1]</tool_call>").calls.size(), 2u);
  EXPECT_EQ(SplitReply(" \n\t").content, "");
  EXPECT_FALSE(Right("number", "3", "The answer is x. It is 3."));
  EXPECT_TRUE(Right("number", "3", "The answer is 3. The answer is x."));
  EXPECT_TRUE(Right("last_number", "1234.5", "so 1,234.50"));
  EXPECT_TRUE(Right("last_number", "\"1,000\"", "1000"));
  EXPECT_FALSE(Right("last_number", "3", "none"));
  EXPECT_FALSE(Right("last_number", "\"none\"", "none")) << "no number is wanted";
}

}  // namespace
}  // namespace braid
