// Proof that the exploration can see: it finds each mistake of protocol.toml, and nothing without
// them. A process for each, because a mistake may end it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/handoff/explore.h"
#include "tests/mistakes/planted.h"

namespace braid {
namespace {

// The one switch of this program.
int planted = kNoMistake;

}  // namespace

void Plant(int mistake) { planted = mistake; }
bool Planted(int mistake) { return planted == mistake; }

namespace {

struct Mistake {
  const char* what;
};

constexpr Mistake kMistakes[] = {
#include "protocol.inc"
};

bool Holds() {
  using handoff::Bounds;
  for (const Bounds& bounds :
       {Bounds{.prefills = 2, .decodes = 1, .rooms = 1, .parts = 2, .faults = 2},
        Bounds{.prefills = 1, .decodes = 1, .rooms = 2, .parts = 1, .faults = 1}}) {
    if (!handoff::Explore(bounds).violation.empty()) return false;
  }
  return true;
}

bool Passes(int mistake) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);  // what the mistake makes it say
    Plant(mistake);
    ::alarm(60);
    ::_exit(Holds() ? 0 : 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(HandoffMistakes, AreFound) {
  ASSERT_TRUE(Passes(kNoMistake));
  for (int i = 0; i < static_cast<int>(std::size(kMistakes)); ++i) {
    EXPECT_FALSE(Passes(i)) << kMistakes[i].what;
  }
}

}  // namespace
}  // namespace braid
