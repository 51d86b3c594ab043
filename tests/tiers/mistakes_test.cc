// Each mistake of pages.toml must make a test of src/tiers fail. A process for each, which runs the
// tests up to the first that fails.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iterator>

#include "tests/mistakes/planted.h"

namespace {

struct Mistake {
  const char* what;
};
constexpr Mistake kMistakes[] = {
#include "pages.inc"
};

// Whether all tests pass with a mistake in the code.
bool PassesWith(int mistake, int argc, char** argv) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(2);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(2);
    ::alarm(60);  // a mistake may leave threads waiting for each other
    braid::Plant(mistake);
    ::testing::InitGoogleTest(&argc, argv);
    GTEST_FLAG_SET(fail_fast, true);
    ::_exit(RUN_ALL_TESTS());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  int failures = 0;
  if (!PassesWith(braid::kNoMistake, argc, argv)) {
    std::printf("the tests fail without a mistake\n");
    ++failures;
  }
  for (int i = 0; i < static_cast<int>(std::size(kMistakes)); ++i) {
    if (!PassesWith(i, argc, argv)) continue;
    std::printf("no test finds: %s\n", kMistakes[i].what);
    ++failures;
  }
  std::printf("%zu mistakes, %d failures\n", std::size(kMistakes), failures);
  return failures == 0 ? 0 : 1;
}
