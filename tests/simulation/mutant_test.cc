// Proof that the simulation can see: each planted bug, alone, must make some seed fail. A line
// each,
//   NAME caught at seed N     or     NAME missed
// and a non-zero exit on a miss. Every bug runs in a process of its own, for it may do anything.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "cache/planted_bug.h"
#include "sim/simulation.h"

namespace braid {

PlantedBug planted_bug = PlantedBug::kNone;

namespace {

constexpr const char* kNames[] = {
    "none",
    "snapshot-not-restored",
    "published-too-early",
    "boundary-off-by-one",
    "freed-in-flight",
    "stale-after-preemption",
    "wrong-tenant",
    "wrong-dp-rank",
    "promoted-too-shallow",
    "pinned-evicted",
    "not-zeroed",
    "published-twice",
    "headroom-not-reserved",
    "shared-freed",
    "pins-forgotten",
    "failed-row-published",
    "tokens-not-compared",
    "whole-prompt-reused",
    "interior-evicted",
    "last-token-published",
    "slot-reused-in-flight",
    "preempted-in-flight",
    "stale-token",
};
static_assert(std::size(kNames) == static_cast<size_t>(PlantedBug::kCount));

// Ends when a seed fails; the parent reads from `seed` which one.
[[noreturn]] void Suffer(PlantedBug bug, uint64_t seeds, volatile uint64_t* seed) {
  const rlimit no_core{0, 0}, cpu{120, 120};
  setrlimit(RLIMIT_CORE, &no_core);
  setrlimit(RLIMIT_CPU, &cpu);
  if (std::freopen("/dev/null", "w", stderr) == nullptr) std::_Exit(3);
  planted_bug = bug;
  for (uint64_t at = 1; at <= seeds; ++at) {
    *seed = at;
    if (!RunSimulation(at).ok()) std::_Exit(1);
  }
  std::_Exit(0);
}

bool Caught(PlantedBug bug, uint64_t seeds) {
  void* shared =
      mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  auto* seed = static_cast<volatile uint64_t*>(shared);
  const pid_t child = fork();
  CHECK(child >= 0, "cannot start a process");
  if (child == 0) Suffer(bug, seeds, seed);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  // Out of processor time is no finding.
  const bool idle =
      WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
  const bool caught = !idle && !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const char* name = kNames[static_cast<size_t>(bug)];
  if (caught) {
    std::printf("%s caught at seed %llu\n", name, static_cast<unsigned long long>(*seed));
  } else {
    std::printf("%s missed\n", name);
  }
  std::fflush(stdout);
  munmap(shared, sizeof(uint64_t));
  return caught;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  const uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10000;
  bool all = true;
  for (size_t bug = 1; bug < static_cast<size_t>(braid::PlantedBug::kCount); ++bug) {
    all &= braid::Caught(static_cast<braid::PlantedBug>(bug), seeds);
  }
  return all ? 0 : 1;
}
