// The proof that a test can see: it passes without a mistake, and with each mistake of a table it
// does not.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>

#include "base/check.h"
#include "base/clock.h"
#include "tests/mistakes/planted.h"

namespace braid {

// A row of the .inc that plant.py makes of a table.
struct Mistake {
  const char* what;
};

// Whether passes() is true, told by the exit code of a process that ends within `seconds`: a
// mistake may crash it, or leave its threads waiting for each other.
template <class Passes>
pid_t StartWith(int mistake, const Passes& passes, unsigned seconds) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  CHECK(child >= 0, "cannot start a process");
  if (child == 0) {
    for (FILE* out : {stdout, stderr}) {  // what the mistake makes it say
      if (mistake != kNoMistake && std::freopen("/dev/null", "w", out) == nullptr) ::_exit(2);
    }
    Plant(mistake);
    ::alarm(seconds);
    const bool passed = passes();
    std::fflush(stdout);
    ::_exit(passed ? 0 : 1);
  }
  return child;
}
inline bool Passed(pid_t child) {
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A run that hangs is ended after ten times what the one without a mistake took. Runs that hang use
// no processor, so a few go on side by side.
template <int kCount, class Passes>
void ExpectEachFound(const Mistake (&mistakes)[kCount], const Passes& passes) {
  const int64_t began_us = MonotonicUs();
  ASSERT_TRUE(Passed(StartWith(kNoMistake, passes, 600)));
  const int64_t took_us = MonotonicUs() - began_us;
  const unsigned seconds = 10 + static_cast<unsigned>(10 * took_us / 1'000'000);
  constexpr int kAtOnce = 4;
  std::array<pid_t, kAtOnce> running = {};
  for (int i = 0; i < kCount + kAtOnce; ++i) {
    pid_t& place = running[static_cast<size_t>(i % kAtOnce)];
    if (i >= kAtOnce && i - kAtOnce < kCount) {
      EXPECT_FALSE(Passed(place)) << mistakes[i - kAtOnce].what;
    }
    if (i < kCount) place = StartWith(i, passes, seconds);
  }
}

}  // namespace braid
