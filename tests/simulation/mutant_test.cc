// Proof that the simulation can see: each planted bug, alone, must make some seed fail. A line
// each,
//   NAME caught at seed N     or     NAME missed
// and a non-zero exit on a miss. Every bug runs in a process of its own, for it may do anything.
#include <cstdio>
#include <cstdlib>

#include "cache/planted_bug.h"
#include "sim/isolated.h"
#include "sim/seed_runs.h"

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

// The first seed that fails; 0 when none does.
uint64_t Catch(PlantedBug bug, uint64_t seeds) {
  constexpr int32_t kCpuSecondsMax = 120;
  SharedValue<uint64_t> seed;
  IsolatedProcess process(
      [&] {
        planted_bug = bug;
        for (*seed = 1; *seed <= seeds; ++*seed) {
          if (!RunSeed(*seed).ok()) return false;
        }
        return true;
      },
      kCpuSecondsMax);
  const IsolatedEnd end = process.Wait();
  const bool caught = !end.clean && !end.out_of_time;
  const char* name = kNames[static_cast<size_t>(bug)];
  if (caught) {
    std::printf("%s caught at seed %llu\n", name, static_cast<unsigned long long>(*seed));
  } else {
    std::printf("%s missed\n", name);
  }
  std::fflush(stdout);
  return caught ? *seed : 0;
}

// A failing seed is made small, and what is left still fails.
bool Shrinks(PlantedBug bug, uint64_t seed) {
  planted_bug = bug;
  const SimulationFailure small = Shrink(seed, {}, "as found");
  planted_bug = PlantedBug::kNone;
  const bool shrunk = !small.smallest.only.empty() && small.smallest.only.size() <= 3 &&
                      small.message != "as found";
  std::printf("%s %s: %s (%s)\n", kNames[static_cast<size_t>(bug)],
              shrunk ? "shrunk to" : "not shrunk beyond", small.command.c_str(),
              small.message.c_str());
  return shrunk;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  using braid::PlantedBug;
  const uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10000;
  bool all = true;
  uint64_t to_shrink = 0;
  for (size_t i = 1; i < static_cast<size_t>(PlantedBug::kCount); ++i) {
    const auto bug = static_cast<PlantedBug>(i);
    const uint64_t seed = braid::Catch(bug, seeds);
    all &= seed > 0;
    if (bug == PlantedBug::kBoundaryOffByOne) to_shrink = seed;
  }
  if (to_shrink > 0) all &= braid::Shrinks(PlantedBug::kBoundaryOffByOne, to_shrink);
  return all ? 0 : 1;
}
