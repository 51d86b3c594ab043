// Published task sets: what is asked, and what of a reply counts.
#include "cli/eval_sets.h"

#include <gmock/gmock.h>

#include "base/check.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

json::object Gsm(const std::string& question, const std::string& answer) {
  return {{"question", question}, {"answer", answer}};
}

json::object Mmlu(const std::string& question, const std::string& letter,
                  const std::string& category = "law") {
  return {{"question_id", 7},
          {"question", question},
          {"options", {"one", "two", "three"}},
          {"answer", letter},
          {"answer_index", letter[0] - 'A'},
          {"cot_content", "A: Let's think step by step. It is so. The answer is (" + letter + ")."},
          {"category", category}};
}

SetQuestion Parsed(const json::object& line) {
  Result<std::optional<SetQuestion>> question = ParseSetQuestion(line, "f:1");
  CHECK(question && *question, "{}", question ? "no question" : question.error().message);
  return **std::move(question);
}

TEST(LastNumber, IsReadAsPeopleWriteIt) {
  const std::pair<const char*, double> cases[] = {
      {"so 12 + 30 = 42", 42},  {"The answer is 1,234.50.", 1234.5},
      {"#### 18", 18},          {"#### -7", -7},
      {"it costs $-5 now", -5}, {"it costs -$5 now", -5},
      {"of 7-5 the last", 5},   {"3.14", 3.14},
      {"1.2.3", 2.3},           {"10 apples and 1,000", 1000},
      {"**72**", 72},           {"0.5%", 0.5},
      {"a list: 1, 2, 3", 3},   {"42.", 42}};
  for (const auto& [text, value] : cases) EXPECT_EQ(LastNumber(text), value) << text;
  for (const char* text : {"", "none", "-", "####", "$,."}) {
    EXPECT_FALSE(LastNumber(text)) << text;
  }
}

TEST(LastLetter, IsTheOneThatIsCalledTheAnswer) {
  const std::pair<const char*, char> cases[] = {
      {"A is wrong. The answer is (B). C would be nice", 'B'},
      {"The answer is (A). No: the answer is (C).", 'C'},
      {"the answer is **B**", 'B'},
      {"Answer: C", 'C'},
      {"I take B because A man said so", 'A'},
      {"(C)", 'C'},
      {"The answer is (Z), or rather B", 'B'}};
  for (const auto& [text, letter] : cases) EXPECT_EQ(LastLetter(text, 3), letter) << text;
  for (const char* text : {"", "D", "BAD CAB", "the answer is none"}) {
    EXPECT_FALSE(LastLetter(text, 3)) << text;
  }
}

TEST(PublishedSets, AreKnownByTheirFields) {
  const SetQuestion sum = Parsed(Gsm("What is 3 + 4?", "3 + 4 = <<3+4=7>>7\n#### 7"));
  EXPECT_EQ(sum.set, "GSM8K");
  EXPECT_EQ(sum.answer, "7");
  EXPECT_EQ(sum.options, 0);
  const SetQuestion choice = Parsed(Mmlu("Which?", "C"));
  EXPECT_EQ(choice.set, "MMLU-Pro");
  EXPECT_EQ(choice.question, "Which?\nOptions:\nA. one\nB. two\nC. three");
  EXPECT_EQ(choice.worked, "Let's think step by step. It is so. The answer is (C).");
  const auto other = ParseSetQuestion({{"messages", json::array()}, {"check", "exact"}}, "f:1");
  ASSERT_TRUE(other);
  EXPECT_FALSE(*other);
}

TEST(PublishedSets, LinesThatLackSomethingAreErrors) {
  const auto says = [](const json::object& line) {
    return ParseSetQuestion(line, "f:3").error().message;
  };
  EXPECT_EQ(says(Gsm("a", "seven")), "f:3: the answer does not end with \"#### \" and a number");
  EXPECT_EQ(says(Gsm("a", "#### seven")),
            "f:3: the answer does not end with \"#### \" and a number");
  EXPECT_THAT(says(Mmlu("a", "D")), HasSubstr("the letter of one"));
  json::object line = Mmlu("a", "B");
  line["options"] = json::array{"one"};
  EXPECT_THAT(says(line), HasSubstr("must be 2 to 26 texts"));
  line["options"] = json::array{"one", 2};
  EXPECT_THAT(says(line), HasSubstr("must be texts"));
}

TEST(PublishedSets, PlainTextHasWorkedExamplesOfTheSameCategory) {
  const std::vector<SetQuestion> examples{Parsed(Mmlu("First?", "A", "art")),
                                          Parsed(Mmlu("Second?", "B")), Parsed(Mmlu("Third?", "C")),
                                          Parsed(Gsm("Sum?", "#### 1"))};
  const EvalItem item = ItemOf(Parsed(Mmlu("Last?", "C")), examples, {.shots = 1, .raw = true});
  EXPECT_EQ(item.prompt,
            "Question: Second?\nOptions:\nA. one\nB. two\nC. three\nAnswer: Let's think step by "
            "step. It is so. The answer is (B).\n\nQuestion: Last?\nOptions:\nA. one\nB. two\nC. "
            "three\nAnswer: Let's think step by step.");
  EXPECT_TRUE(item.messages.is_null());
  const EvalItem sum = ItemOf(Parsed(Gsm("What?", "#### 5")), examples, {.shots = 3, .raw = true});
  EXPECT_EQ(sum.prompt, "Question: Sum?\nAnswer: #### 1\n\nQuestion: What?\nAnswer:");
  EXPECT_EQ(UpToNextQuestion("it is 5\n\nQuestion: 6?"), "it is 5\n");
}

TEST(PublishedSets, AChatHasATurnForEachExample) {
  const std::vector<SetQuestion> examples{Parsed(Gsm("One?", "It is one. #### 1"))};
  const EvalItem item =
      ItemOf(Parsed(Gsm("Two?", "#### 2")), examples, {.shots = 5, .thinking = false});
  EXPECT_FALSE(item.thinking);
  const json::array& messages = item.messages.get_array();
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[1], (json::object{{"role", "assistant"}, {"content", "It is one. #### 1"}}));
  EXPECT_THAT(std::string(messages[2].at("content").get_string()), HasSubstr("Two?"));
  EXPECT_TRUE(IsRight(item, SplitReply("<think>3</think>It is 2.0 apples")));
  EXPECT_FALSE(IsRight(item, SplitReply("2 and then 3")));
  EXPECT_FALSE(IsRight(item, SplitReply("none")));
  const EvalItem choice = ItemOf(Parsed(Mmlu("Which?", "C")), {}, {});
  EXPECT_TRUE(IsRight(choice, SplitReply("B? No. The answer is (C).")));
  EXPECT_FALSE(IsRight(choice, SplitReply("The answer is (B).")));
}

}  // namespace
}  // namespace braid
