// See the header.
#include "base/system/priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace braid {
namespace {

// What a thread has after the calls, in a process whose priority is `nice`; the child reports it
// as its exit code, for a process may not be able to raise its own again.
int NiceAfter(int nice, int first_steps, int steps) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpriority(PRIO_PROCESS, 0, nice);
    int found = 0;
    std::thread([&] {
      GiveWay(first_steps);
      GiveWay(steps);
      found = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
    }).join();
    ::_exit(::getpriority(PRIO_PROCESS, 0) == nice ? found : 100);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GiveWay, IsCountedFromTheProcess) {
  const int own = ::getpriority(PRIO_PROCESS, 0);
  const int nice = own > 10 ? own : 10;
  EXPECT_EQ(NiceAfter(nice, 0, 0), nice);
  EXPECT_EQ(NiceAfter(nice, 0, 5), std::min(nice + 5, 19));
  EXPECT_EQ(NiceAfter(nice, 5, 5), std::min(nice + 5, 19)) << "steps of two calls were added";
  EXPECT_EQ(NiceAfter(nice, 0, 19), 19);
}

}  // namespace
}  // namespace braid
