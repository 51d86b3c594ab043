// See the header.
#include "base/system/priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace braid {
namespace {

constexpr int kOwn = 10, kNotAllowed = 100;

// What a thread of a process of priority kOwn has after the calls. A child's exit code says it, for
// a process may not be able to raise its own priority again.
int NiceAfter(int first_steps, int steps) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpriority(PRIO_PROCESS, 0, kOwn);
    if (::getpriority(PRIO_PROCESS, 0) != kOwn) ::_exit(kNotAllowed);
    int found = 0;
    std::thread([&] {
      GiveWay(first_steps);
      GiveWay(steps);
      found = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
    }).join();
    ::_exit(found);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GiveWay, IsCountedFromTheProcess) {
  if (NiceAfter(0, 0) == kNotAllowed) GTEST_SKIP() << "started with a lower priority than 10";
  EXPECT_EQ(NiceAfter(0, 0), 10);
  EXPECT_EQ(NiceAfter(0, 5), 15);
  EXPECT_EQ(NiceAfter(5, 5), 15) << "steps of two calls were added";
  EXPECT_EQ(NiceAfter(0, 19), 19);
}

}  // namespace
}  // namespace braid
