// The bar as a terminal gets it.
#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"

namespace braid {
namespace {

// Standard error is a terminal of the test's while this lives.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)), kept_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::grantpt(master_), 0);
    EXPECT_EQ(::unlockpt(master_), 0);
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    ::dup2(slave, STDERR_FILENO);
    ::close(slave);
  }
  ~Terminal() {
    ::dup2(kept_, STDERR_FILENO);
    ::close(kept_);
    ::close(master_);
  }
  // What has been written since the last call.
  std::string Read() const {
    std::fflush(stderr);
    std::string text;
    pollfd readable{.fd = master_, .events = POLLIN, .revents = 0};
    while (::poll(&readable, 1, 20) == 1 && (readable.revents & POLLIN) != 0) {
      char part[512];
      const ssize_t got = ::read(master_, part, sizeof part);
      if (got <= 0) break;
      text.append(part, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int master_, kept_;
};

TEST(ProgressBar, ShowsTheFractionAndWipesItself) {
  const Terminal terminal;
  {
    ProgressBar bar("loading", 0);
    bar.Show(0.5, "layer 3");
    const std::string line = terminal.Read();
    EXPECT_NE(line.find("\rloading [===============               ]  50 %, "), std::string::npos)
        << line;
    EXPECT_NE(line.find(" s left  layer 3"), std::string::npos) << line;
  }
  EXPECT_EQ(terminal.Read(), "\r\033[K");
}

TEST(ProgressBar, GuessesNoTimeAtTheStartAndStaysInItsWidth) {
  const Terminal terminal;
  ProgressBar first("a", 0), last("b", 0);
  first.Show(0.01);
  last.Show(1.5);
  const std::string text = terminal.Read();
  EXPECT_NE(text.find("a [                              ]   1 %\033[K"), std::string::npos) << text;
  EXPECT_NE(text.find("b [==============================]"), std::string::npos) << text;
}

TEST(ProgressBar, IsSilentBeforeItsDelayAndBetweenItsTimes) {
  const Terminal terminal;
  ProgressBar late("late", 60);
  late.Show(0.5);
  EXPECT_EQ(terminal.Read(), "");
  const int64_t start_us = MonotonicUs();
  ProgressBar often("often", 0);
  often.Show(0.5);
  often.Show(0.6);
  const bool within = MonotonicUs() - start_us < 100'000;  // a tenth of a second
  const std::string text = terminal.Read();
  EXPECT_NE(text.find("50 %"), std::string::npos);
  EXPECT_TRUE(!within || text.find("60 %") == std::string::npos);
}

TEST(ProgressBar, IsSilentWhereStandardErrorIsNoTerminal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  EXPECT_FALSE(StderrIsTerminal());
  {
    ProgressBar bar("loading", 0);
    bar.Show(0.5);
  }
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  ::close(ends[1]);
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace braid
