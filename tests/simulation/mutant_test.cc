// Proof that the simulation can see: each planted bug, alone, must make some seed fail. A line
// each,
//   NAME caught at seed N     or     NAME missed
// and a non-zero exit on a miss. Every bug runs in a process of its own, for it may do anything.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "scheduler/driver.h"
#include "sim/isolated.h"
#include "sim/seed_runs.h"
#include "tests/mistakes/planted.h"

namespace braid {
namespace {

struct Bug {
  std::string_view name;
};

constexpr Bug kBugs[] = {
#include "bugs.inc"
};

int BugOf(std::string_view name) {
  const auto* at = std::find_if(std::begin(kBugs), std::end(kBugs),
                                [&](const Bug& bug) { return bug.name == name; });
  CHECK(at != std::end(kBugs), "bugs.toml has no bug \"{}\"", name);
  return static_cast<int>(at - kBugs);
}

// The first seed that fails; 0 when none does.
uint64_t Catch(int bug, uint64_t seeds) {
  constexpr int32_t kCpuSecondsMax = 120;
  SharedValue<uint64_t> seed;
  IsolatedProcess process(
      [&] {
        Plant(bug);
        for (*seed = 1; *seed <= seeds; ++*seed) {
          if (!RunSeed(*seed).ok()) return false;
        }
        return true;
      },
      kCpuSecondsMax);
  const IsolatedEnd end = process.Wait();
  const bool caught = !end.clean && !end.out_of_time;
  const char* name = kBugs[bug].name.data();
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

// A driver with inconsistent accounting logs it while idle, drops the cache, and goes on serving.
bool Repairs() {
  const Workload w{.config = {.cache = {.groups = {{"full", GroupKind::kFull, 64, 1},
                                                   {"state", GroupKind::kState, 64, 1}},
                                        .page_bytes = 64,
                                        .pages = 20},
                              .context_tokens_max = 500,
                              .step_tokens_max = 100,
                              .running_max = 2,
                              .vocabulary = 100},
                   .requests = {}};
  HashExecutor executor(w.config.cache, w.config.vocabulary);
  Plant(BugOf("pins-forgotten"));
  Driver driver(*Scheduler::Create(w.config), executor, {.audit_every_us = 1});
  std::thread thread([&] { (void)driver.Run(); });
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
  Plant(kNoMistake);
  const DriverStats stats = driver.stats();
  const bool repaired = second.finished && stats.repairs > 0 && stats.scheduler.pages_used == 0;
  std::printf("wrong accounts %s\n", repaired ? "are found and repaired" : "are not repaired");
  return repaired;
}

// A failing seed is made small, and what is left still fails.
bool Shrinks(int bug, uint64_t seed) {
  Plant(bug);
  const SimulationFailure small = Shrink(seed, {}, "as found");
  Plant(kNoMistake);
  const bool shrunk = !small.smallest.only.empty() && small.smallest.only.size() <= 3 &&
                      small.smallest.prompt_tokens_max > 0 &&
                      small.smallest.output_tokens_max > 0 && small.message != "as found";
  std::printf("%s %s: %s (%s)\n", kBugs[bug].name.data(),
              shrunk ? "shrunk to" : "not shrunk beyond", small.command.c_str(),
              small.message.c_str());
  return shrunk;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  const uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10000;
  bool all = true;
  const int to_shrink = braid::BugOf("boundary-off-by-one");
  for (int bug = 0; bug < static_cast<int>(std::size(braid::kBugs)); ++bug) {
    const uint64_t seed = braid::Catch(bug, seeds);
    all &= seed > 0;
    if (bug == to_shrink && seed > 0) all &= braid::Shrinks(bug, seed);
  }
  all &= braid::Repairs();
  return all ? 0 : 1;
}
