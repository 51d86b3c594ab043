// Each mistake of pages.toml must make a test of src/tiers fail. A process for each, which runs the
// tests up to the first that fails.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>

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

struct Ended {
  pid_t child;
  bool passed;  // all its tests
};

// Waits for the first that ends.
Ended Await() {
  int status = 0;
  const pid_t child = ::wait(&status);
  return {child, WIFEXITED(status) && WEXITSTATUS(status) == 0};
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kCount = static_cast<int>(std::size(kMistakes)), kAtOnce = 8;
  int failures = 0;
  const int64_t began_us = braid::MonotonicUs();
  StartWith(braid::kNoMistake, 600, argc, argv);
  if (!Await().passed) {
    std::printf("the tests fail without a mistake\n");
    ++failures;
  }
  // Tests that are slow because the machine is busy have found nothing.
  const auto alone = static_cast<unsigned>((braid::MonotonicUs() - began_us) / 1'000'000);
  const unsigned seconds = std::max(30u, 10 * alone);
  std::map<pid_t, int> running;  // the mistake of each process
  for (int next = 0; next < kCount || !running.empty();) {
    if (next < kCount && std::ssize(running) < kAtOnce) {
      running[StartWith(next, seconds, argc, argv)] = next;
      ++next;
      continue;
    }
    const Ended ended = Await();
    if (ended.passed) {
      std::printf("no test finds: %s\n", kMistakes[running.at(ended.child)].what);
      ++failures;
    }
    running.erase(ended.child);
  }
  std::printf("%d mistakes, %d failures\n", kCount, failures);
  return failures == 0 ? 0 : 1;
}
