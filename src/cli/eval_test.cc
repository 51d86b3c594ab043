// Which lines of which files are asked, and what is counted of them.
#include "cli/eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EvalTasks : public ::testing::Test {
 protected:
  static std::string Gsm8kLine(int number) {
    return "{\"question\": \"Q" + std::to_string(number) + "?\", \"answer\": \"#### " +
           std::to_string(number) + "\"}\n";
  }
  std::string Write(const std::string& name, const std::string& text) const {
    directory_.Write(name, text);
    return directory_.path() + "/" + name;
  }
  static std::vector<std::string> AnswersOf(const std::vector<EvalItem>& items) {
    std::vector<std::string> all;
    for (const EvalItem& item : items) all.emplace_back(item.answer.as_string());
    return all;
  }
  const TestDirectory directory_;
};

TEST_F(EvalTasks, AFileIsATaskWithChatsAndTexts) {
  const std::string lines =
      R"({"check": "exact", "answer": "a", "messages": [{}]}
{"check": "perplexity", "answer": null, "text": "one"}
{"check": "exact", "answer": "b", "messages": [{}]}
{"check": "perplexity", "answer": null, "text": "two"}
{"check": "exact", "answer": "c", "messages": [{}]}
)";
  const auto tasks = ReadTasks({Write("first.jsonl", lines), Write("more.of.it", lines)}, 2);
  ASSERT_TRUE(tasks) << tasks.error().message;
  ASSERT_EQ(tasks->size(), 2u);
  EXPECT_EQ((*tasks)[0].name, "first");
  EXPECT_EQ((*tasks)[1].name, "more.of");
  EXPECT_THAT(AnswersOf((*tasks)[0].chats), ElementsAre("a", "b")) << "two of a kind";
  ASSERT_EQ((*tasks)[0].texts.size(), 2u);
  EXPECT_EQ((*tasks)[0].texts[1].text, "two");
}

// The first lines are shown, and not asked, unless a file of its own has what is shown.
TEST_F(EvalTasks, WorkedExamplesAreTheFirstLinesOrThoseOfTheirFile) {
  std::string lines;
  for (int i = 1; i <= 4; ++i) lines += Gsm8kLine(i);
  const std::string file = Write("sums.jsonl", lines);
  const std::string shown = Write("shown.jsonl", Gsm8kLine(8) + Gsm8kLine(9));
  const auto read = [&](const SetShots& shots) {
    auto tasks = ReadTasks({file}, 9, shots);
    CHECK(tasks, "{}", tasks.error().message);
    return std::move(tasks->front());
  };
  EXPECT_THAT(AnswersOf(read({}).chats), ElementsAre("1", "2", "3", "4"));
  const EvalTask two = read({.prompting = {.shots = 2, .raw = true}});
  EXPECT_THAT(AnswersOf(two.chats), ElementsAre("3", "4"));
  EXPECT_EQ(two.chats[1].prompt,
            "Question: Q1?\nAnswer: #### 1\n\nQuestion: Q2?\nAnswer: #### 2\n\n"
            "Question: Q4?\nAnswer:");
  const EvalTask other = read({.prompting = {.shots = 1, .raw = true}, .file = shown});
  EXPECT_THAT(AnswersOf(other.chats), ElementsAre("1", "2", "3", "4"));
  EXPECT_EQ(other.chats[0].prompt, "Question: Q8?\nAnswer: #### 8\n\nQuestion: Q1?\nAnswer:");
  const auto all = ReadTasks({file}, 9, {.prompting = {.shots = 4}});
  ASSERT_FALSE(all);
  EXPECT_THAT(all.error().message, HasSubstr("all lines are worked examples"));
  const auto wrong = ReadTasks(
      {file}, 9, {.file = Write("wrong.jsonl", Gsm8kLine(1) + "{\"check\": \"exact\"}\n")});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("wrong.jsonl:2: is no line of GSM8K or MMLU-Pro"));
  EXPECT_THAT(ReadTasks({Write("bad.jsonl", "{\"check\": \"guess\"}\n")}, 9).error().message,
              HasSubstr("bad.jsonl:1"));
}

TEST_F(EvalTasks, PerplexityIsThatOfTheMeanToken) {
  EvalTask task;
  EXPECT_EQ(task.perplexity(), 0) << "nothing was scored";
  task.log_likelihood = -6;
  task.scored_tokens = 3;
  EXPECT_DOUBLE_EQ(task.perplexity(), std::exp(2));
}

// Written out in a text, a token that the vocabulary lacks would be several ordinary ones.
TEST(EndOfText, IsATokenOfTheVocabularyOrNone) {
  const auto with = [](const std::string& end) {
    auto tokenizer = Tokenizer::FromJson(
        R"({"added_tokens": [{"id": 2, "content": ")" + end +
        R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true}],
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                        "use_regex": false},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
    CHECK(tokenizer, "{}", tokenizer.error().message);
    return *std::move(tokenizer);
  };
  const Tokenizer ends = with("<|endoftext|>"), other = with("</s>");
  const std::vector<TokenId> one = {2}, two = {1, 2};
  EXPECT_EQ(EndOfText(ends, two), 2);
  EXPECT_EQ(EndOfText(ends, {}), 2);
  EXPECT_EQ(EndOfText(other, one), 2);
  EXPECT_EQ(EndOfText(other, two), std::nullopt);
  EXPECT_EQ(EndOfText(other, {}), std::nullopt);
}

}  // namespace
}  // namespace braid
