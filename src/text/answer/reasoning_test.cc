// Reasoning and content come apart the same way however the stream is cut.
#include "text/answer/reasoning.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "text/test_model.h"

namespace braid {
namespace {

struct Split {
  std::string reasoning;
  std::string content;
  bool operator==(const Split&) const = default;
};

void Add(const ReasoningSplitter::Piece& piece, Split* out) {
  out->reasoning += piece.reasoning;
  out->content += piece.content;
}

Split Streamed(const std::vector<std::string_view>& pieces, bool inside) {
  ReasoningSplitter splitter({}, inside);
  Split out;
  for (std::string_view piece : pieces) Add(splitter.Push(piece), &out);
  Add(splitter.Flush(), &out);
  return out;
}

struct SplitCase {
  std::string text;
  bool inside;
  Split expected;
};

std::vector<SplitCase> Cases() {
  return {
      {"", false, {"", ""}},
      {"", true, {"", ""}},
      {"Plain answer.", false, {"", "Plain answer."}},
      {"\n  Plain answer.\n", false, {"", "\n  Plain answer.\n"}},
      {"<think>\nWhy?\n</think>\n\nSo.\n", false, {"Why?", "So.\n"}},
      {"  \n<think>Why?</think>So.", false, {"Why?", "So."}},
      {"Why?\n</think>\n\nSo.", true, {"Why?", "So."}},
      {"\n\nWhy?\n\n\nReally.\n\n</think>So.", true, {"Why?\n\n\nReally.", "So."}},
      {"<think>\nWhy?\n</think>\n\nSo.", true, {"Why?", "So."}},
      {"\n</think>\n\nSo.", true, {"", "So."}},
      {"</think>", true, {"", ""}},
      {"Cut in the middle\n", true, {"Cut in the middle\n", ""}},
      {"Cut in a tag\n</thi", true, {"Cut in a tag\n</thi", ""}},
      {"a < b </ c </thin </think>\n d", true, {"a < b </ c </thin ", " d"}},
      {"<</think></think>x", true, {"<", "</think>x"}},
      {"Text <think>is</think> text", false, {"", "Text <think>is</think> text"}},
      {"<think>a</think><think>b</think>c", false, {"a", "<think>b</think>c"}},
      {"<thinking>a", false, {"", "<thinking>a"}},
      {"\n<thi", false, {"", "\n<thi"}},
      {"</think>stray", false, {"", "</think>stray"}},
  };
}

TEST(ReasoningTest, SplitsAtTheTags) {
  for (const SplitCase& c : Cases()) EXPECT_EQ(Streamed({c.text}, c.inside), c.expected) << c.text;
}

TEST(ReasoningTest, AnyCutGivesTheSameParts) {
  for (const SplitCase& c : Cases()) {
    const std::string_view text = c.text;
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    EXPECT_EQ(Streamed(bytes, c.inside), c.expected) << text;
    for (size_t i = 0; i <= text.size(); ++i) {
      for (size_t j = i; j <= text.size(); ++j) {
        const std::vector<std::string_view> pieces = {text.substr(0, i), text.substr(i, j - i),
                                                      text.substr(j)};
        EXPECT_EQ(Streamed(pieces, c.inside), c.expected) << text << " " << i << " " << j;
      }
    }
  }
}

TEST(ReasoningTest, RandomTagSoupIsTheSameHoweverItIsCut) {
  const std::vector<std::string_view> parts = {"<think>", "</think>", "<",     "</",  "\n",
                                               " ",       "x",        "</thi", "nk>", "\n\n"};
  Rng rng(10);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    std::vector<std::string_view> pieces;
    for (int64_t n = rng.Below(10); n > 0; --n) {
      pieces.push_back(parts[static_cast<size_t>(rng.Below(10))]);
      text += pieces.back();
    }
    const bool inside = rng.Below(2) == 1;
    EXPECT_EQ(Streamed(pieces, inside), Streamed({text}, inside)) << text;
  }
}

TEST(ReasoningTest, EmitsAtOnceWhatIsCertain) {
  ReasoningSplitter splitter({}, true);
  EXPECT_TRUE(splitter.inside_reasoning());
  EXPECT_EQ(splitter.Push("\nLet me").reasoning, "Let me");
  EXPECT_EQ(splitter.Push(" see\n").reasoning, " see");
  EXPECT_EQ(splitter.Push("more </").reasoning, "\nmore ");
  const ReasoningSplitter::Piece piece = splitter.Push("think>\n\nDone");
  EXPECT_EQ(piece.reasoning, "");
  EXPECT_EQ(piece.content, "Done");
  EXPECT_FALSE(splitter.inside_reasoning());
}

TEST(ReasoningTest, TagsAreSettings) {
  ReasoningSplitter splitter({.open = "[R]", .close = "[/R]"}, false);
  const ReasoningSplitter::Piece piece = splitter.Push("[R]a[/R]b");
  EXPECT_EQ(piece.reasoning, "a");
  EXPECT_EQ(piece.content, "b");
}

TEST(ReasoningTest, ThePromptSaysWhereGenerationBegins) {
  EXPECT_TRUE(PromptOpensReasoning("<|im_start|>assistant\n<think>\n", {}));
  EXPECT_TRUE(PromptOpensReasoning("<role>ASSISTANT</role><think>", {}));
  EXPECT_FALSE(PromptOpensReasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n", {}));
  EXPECT_FALSE(PromptOpensReasoning("What is <think>?<|im_end|>\n<|im_start|>assistant\n", {}));
  EXPECT_FALSE(PromptOpensReasoning(" \n", {}));
}

TEST(ReasoningTest, AContinuedMessageIsInTheThinkingThatItDoesNotClose) {
  const ReasoningFormat always{.opens_always = true};
  EXPECT_FALSE(ContinuesReasoning(always, "x So", "So"));
  EXPECT_TRUE(ContinuesReasoning(always, "x<think>\nSo", "So")) << "the template opens it";
  EXPECT_TRUE(ContinuesReasoning(always, "x <think>So", "<think>So"));
  EXPECT_FALSE(ContinuesReasoning(always, "x <think>a</think>So", "<think>a</think>So"));
  EXPECT_FALSE(ContinuesReasoning({.tags = {.open = "", .close = ""}}, "x<think>So", "So"));
}

TEST(ReasoningTest, LongRunsOfBlanksAreLinear) {
  for (bool inside : {false, true}) {
    ReasoningSplitter splitter({}, inside);
    const double start = CpuSeconds();
    size_t size = splitter.Push(inside ? "x" : " ").reasoning.size();
    for (int i = 0; i < (1 << 20); ++i) size += splitter.Push("\n").content.size();
    const ReasoningSplitter::Piece last = splitter.Flush();
    size += last.content.size() + last.reasoning.size();
    const double seconds = CpuSeconds() - start;
    EXPECT_EQ(size, (size_t{1} << 20) + 1);
    EXPECT_LT(seconds, 10);
  }
}

}  // namespace
}  // namespace braid
