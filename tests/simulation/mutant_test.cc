// Proof that the simulation can see: each planted bug, alone, must make some seed fail. A line
// each,
//   NAME caught at seed N     or     NAME missed
// and a non-zero exit on a miss. Every bug runs in a process of its own, for it may do anything.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "cache/planted_bug.h"
#include "scheduler/driver.h"
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
    "idle-rank-left-out",
    "stale-token",
    "draft-published",
    "refused-committed",
    "refused-kept",
    "commit-off-by-one",
    "drafts-not-awaited",
    "stop-among-drafts-missed",
    "read-before-arrival",
    "sent-pages-freed",
    "awaited-pages-freed",
    "transfer-failure-ignored",
    "follower-not-woken",
    "follows-another-tenant",
    "follower-too-early",
    "no-state-for-follower",
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

struct Last : OutputSink {
  void OnOutput(Output output) override {
    if (output.finish) finished = true;
  }
  std::atomic<bool> finished{false};
};

// A driver whose accounts are wrong says so while it is idle, starts anew, and goes on serving.
bool Repairs() {
  const Workload w{.config = {.cache = {.groups = {{"full", GroupKind::kFull, 64, 1},
                                                   {"state", GroupKind::kState, 64, 1}},
                                        .parent_bytes = 64,
                                        .parents = 20},
                              .context_tokens_max = 500,
                              .step_tokens_max = 100,
                              .running_max = 2,
                              .vocabulary = 100},
                   .requests = {}};
  SimulatedEngine engine(w);
  HashExecutor& executor = engine.executor;
  planted_bug = PlantedBug::kPinsForgotten;
  Driver driver(std::move(engine.scheduler), executor, {.audit_every_us = 1});
  std::thread thread([&] { driver.Run(); });
  Last first, second;
  for (Last* sink : {&first, &second}) {
    Request request;
    request.id = driver.NewRequestId();
    request.prompt.assign(100, 1);
    request.stop.new_tokens_max = 3;
    if (!driver.Submit(std::move(request), sink)) break;
    while (!sink->finished) std::this_thread::yield();
  }
  driver.Stop(false);
  thread.join();
  planted_bug = PlantedBug::kNone;
  const DriverStats stats = driver.stats();
  const bool repaired = second.finished && stats.repairs > 0 && stats.scheduler.parents_used == 0;
  std::printf("wrong accounts %s\n", repaired ? "are found and repaired" : "are not repaired");
  return repaired;
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
  all &= braid::Repairs();
  return all ? 0 : 1;
}
