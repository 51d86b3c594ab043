// Standard input and signals, whichever comes first. Each test is a process of its own: its input
// and its signals are the process's.
#include "cli/terminal/input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/check.h"

namespace braid {
namespace {

class Input : public ::testing::Test {
 protected:
  Input() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  // A pipe becomes standard input; its end to write to.
  static int Pipe() {
    int ends[2];
    CHECK(::pipe(ends) == 0 && ::dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
    ::close(ends[0]);
    return ends[1];
  }
  static void Say(int pipe, const std::string& text) {
    CHECK(::write(pipe, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
};

TEST_F(Input, IsReadToItsEnd) {
  const auto read = [] {
    SignalQueue signals{SIGINT};
    const int pipe = Pipe();
    Say(pipe, "a prompt");
    ::close(pipe);
    std::_Exit(ReadAllInput(signals) == "a prompt" ? 7 : 1);
  };
  EXPECT_EXIT(read(), ::testing::ExitedWithCode(7), "");
}

TEST_F(Input, ASignalEndsTheWait) {
  const auto read = [] {
    SignalQueue signals{SIGINT};
    const int pipe = Pipe();
    Say(pipe, "half a prompt");
    ::kill(::getpid(), SIGINT);
    const bool left = !ReadAllInput(signals);
    std::string text;
    const bool goes_on = ReadInput(signals, text) == Arrived::kBytes && text == "half a prompt";
    ::close(pipe);
    std::_Exit(left && goes_on && ReadInput(signals, text) == Arrived::kEnd ? 7 : 1);
  };
  EXPECT_EXIT(read(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace braid
