// Each mistake of pages.toml must make a test of src/tiers fail. A process for each, which runs the
// tests up to the first that fails.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "base/clock.h"
#include "tests/mistakes/planted.h"

namespace {

struct Mistake {
  const char* what;
};
constexpr Mistake kMistakes[] = {
#include "pages.inc"
};

// A process that runs the tests with a mistake in the code, for so many seconds at most: a mistake
// may leave threads waiting for each other.
pid_t StartWith(int mistake, unsigned seconds, int argc, char** argv) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (FILE* out : {stdout, stderr}) {  // what fails without a mistake is to be read
    if (mistake != braid::kNoMistake && std::freopen("/dev/null", "w", out) == nullptr) ::_exit(2);
  }
  ::alarm(seconds);
  braid::Plant(mistake);
  ::testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(brief, true);
  GTEST_FLAG_SET(fail_fast, true);
  ::_exit(RUN_ALL_TESTS());
}

// Waits for it. Whether all tests passed.
bool Passed(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kCount = static_cast<int>(std::size(kMistakes)), kAtOnce = 8;
  int failures = 0;
  const int64_t began_us = braid::MonotonicUs();
  if (!Passed(StartWith(braid::kNoMistake, 600, argc, argv))) {
    std::printf("the tests fail without a mistake\n");
    ++failures;
  }
  // Tests that are slow because the machine is busy have found nothing.
  const auto alone = static_cast<unsigned>((braid::MonotonicUs() - began_us) / 1'000'000);
  const unsigned seconds = std::max(30u, 10 * alone);
  std::array<pid_t, kAtOnce> running = {};
  for (int i = 0; i < kCount + kAtOnce; ++i) {
    pid_t& place = running[static_cast<size_t>(i % kAtOnce)];
    if (i >= kAtOnce && i - kAtOnce < kCount && Passed(place)) {
      std::printf("no test finds: %s\n", kMistakes[i - kAtOnce].what);
      ++failures;
    }
    if (i < kCount) place = StartWith(i, seconds, argc, argv);
  }
  std::printf("%d mistakes, %d failures\n", kCount, failures);
  return failures == 0 ? 0 : 1;
}
