// What an answer looks like while it grows, in a terminal and elsewhere.
#include "cli/terminal/chat_loop.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

std::string Shown(bool terminal, const std::vector<TextPiece>& pieces) {
  ::testing::internal::CaptureStdout();
  AnswerPrinter printer(terminal);
  for (const TextPiece& piece : pieces) printer.Print(piece);
  printer.End();
  return ::testing::internal::GetCapturedStdout();
}

const std::vector<TextPiece> kAnswer = {
    {.reasoning = "a ", .content = ""},
    {.reasoning = "b", .content = ""},
    {.reasoning = "", .content = "c "},
    {.reasoning = "", .content = "d"},
};

TEST(AnswerPrinter, ATerminalShowsThoughtsDimmed) {
  EXPECT_EQ(Shown(true, kAnswer), "\033[2ma b\033[0m\n\nc d\n");
  EXPECT_EQ(Shown(true, {kAnswer[2]}), "c \n") << "without a thought";
  EXPECT_EQ(Shown(true, {kAnswer[0]}), "\033[2ma \033[0m\n") << "cut off in the thought";
  EXPECT_EQ(Shown(true, {{.reasoning = "a", .content = "c"}}), "\033[2ma\033[0m\n\nc\n");
}

TEST(AnswerPrinter, ElsewhereThereAreNoThoughts) {
  EXPECT_EQ(Shown(false, kAnswer), "c d\n");
  EXPECT_EQ(Shown(false, {kAnswer[0]}), "\n");
}

// One printer may print several answers.
TEST(AnswerPrinter, AnAnswerEndsWithItsDimming) {
  ::testing::internal::CaptureStdout();
  AnswerPrinter printer(true);
  for (int i = 0; i < 2; ++i) {
    printer.Print({.reasoning = "a", .content = ""});
    printer.End();
  }
  printer.Print({.reasoning = "", .content = "c"});
  printer.End();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "\033[2ma\033[0m\n\033[2ma\033[0m\nc\n");
}

TEST(ChatContext, ThinkingIsMentionedWhenItIsNotWanted) {
  const json::array messages = {json::object{{"role", "user"}, {"content", "hi"}}};
  const json::object plain = ChatContext({}, messages);
  EXPECT_EQ(plain.at("messages"), messages);
  EXPECT_EQ(plain.at("add_generation_prompt"), true);
  EXPECT_FALSE(plain.contains("enable_thinking"));
  EXPECT_EQ(ChatContext({.no_thinking = true}, messages).at("enable_thinking"), false);
}

}  // namespace
}  // namespace braid
