// See the header. Workers share figures with the parent through memory; only what is atomic is read
// while they run.
#include "sim/seed_runs.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "sim/isolated.h"

namespace braid {
namespace {

// A seed takes milliseconds; one that takes a minute of processor time will not end.
constexpr int32_t kSeedSecondsMax = 60;
constexpr std::chrono::milliseconds kLook{200};
// Ids of the requests of one wave of a soak.
constexpr int64_t kWaveIds = 1000;

struct Worker {
  std::atomic<uint64_t> seed{0};  // at work on
  std::atomic<int64_t> seeds{0}, steps{0};
  std::atomic<bool> stop{false};
  SimulationStats total;
  int64_t resident_early = 0, resident_end = 0;
};

int64_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long size = 0, resident = 0;
  if (std::fscanf(file, "%lld %lld", &size, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

struct Share {
  const SimulationOptions& options;
  int32_t index;
  int64_t seeds, steps;  // of this worker; 0: no limit
};

// The figures of an engine that shall live long: the first from this seed on with room for some
// requests, but not for all that come, unless no arena may be tiny.
Workload LongLived(uint64_t seed, const WorkloadOptions& options) {
  constexpr int32_t kPagesMax = 40, kRunningMin = 3;
  Workload w = MakeWorkload(seed, options);
  if ((options.faults & MaskOf(Fault::kTiny)) == 0) return w;
  while (w.config.prefix_cache != options.prefix_cache || w.config.cache.pages > kPagesMax ||
         w.config.running_max < kRunningMin || w.config.context_tokens_max < 4 * kBlockTokens) {
    w = MakeWorkload(++seed, options);
  }
  return w;
}

// The work of one process; false, with the message on standard error, when a seed fails.
bool RunShare(const Share& share, Worker& worker) {
  const SimulationOptions& o = share.options;
  const auto stride = static_cast<uint64_t>(o.processes);
  const uint64_t first = o.from + static_cast<uint64_t>(share.index);
  const Workload base = o.soak ? LongLived(first, o.workload) : Workload();
  std::optional<SimulatedEngine> engine;
  if (o.soak) engine.emplace(base);
  const int64_t begin_us = MonotonicUs();
  const int64_t limit_us = static_cast<int64_t>(o.minutes * 60e6);
  const auto progress = [&](int64_t elapsed_us) {  // in tenths
    int64_t tenths = limit_us > 0 ? elapsed_us * 10 / limit_us : 0;
    if (share.seeds > 0) tenths = std::max(tenths, worker.seeds * 10 / share.seeds);
    if (share.steps > 0) tenths = std::max(tenths, worker.steps * 10 / share.steps);
    return tenths;
  };
  for (uint64_t seed = first; !worker.stop; seed += stride) {
    const int64_t tenths = progress(MonotonicUs() - begin_us);
    if (tenths >= 1 && worker.resident_early == 0) worker.resident_early = ResidentBytes();
    if (tenths >= 10) break;
    worker.seed = seed;
    const int64_t first_id = worker.seeds * kWaveIds;
    const auto stats = o.soak ? RunWave(MakeWave(seed, base, first_id, o.workload), *engine)
                              : RunSeed(seed, o.workload);
    if (!stats) {
      std::fprintf(stderr, "%s\n", stats.error().message.c_str());
      return false;
    }
    worker.total.Add(*stats);
    worker.steps += stats->steps;
    ++worker.seeds;
  }
  worker.resident_end = ResidentBytes();
  return true;
}

// What one seed says in a process of its own; empty when all is well.
std::string MessageOf(uint64_t seed, const WorkloadOptions& options) {
  IsolatedProcess process(
      [&] {
        const auto stats = RunSeed(seed, options);
        if (!stats) std::fprintf(stderr, "%s\n", stats.error().message.c_str());
        return stats.ok();
      },
      kSeedSecondsMax);
  const IsolatedEnd end = process.Wait();
  if (end.clean) return {};
  if (end.out_of_time) return "it does not end";
  return end.said.empty() ? "it crashed" : end.said;
}

std::string CommandOf(uint64_t seed, const WorkloadOptions& o) {
  std::string command = fmt::format("braid simulate --seed {}", seed);
  if (o.kind != WorkloadKind::kMixed) command += fmt::format(" --workload {}", NameOf(o.kind));
  if (o.faults != kAllFaults) {
    std::vector<std::string_view> names;
    for (uint32_t f = 0; f < static_cast<uint32_t>(Fault::kCount); ++f) {
      if (o.faults & (1u << f)) names.emplace_back(NameOf(static_cast<Fault>(f)));
    }
    if (names.empty()) names.emplace_back("none");
    command += fmt::format(" --faults {}", fmt::join(names, ","));
  }
  if (o.overlap_depth) command += fmt::format(" --overlap {}", *o.overlap_depth);
  if (o.placement) {
    constexpr const char* kNames[] = {"prefix-affine", "least-loaded", "round-robin"};
    command += fmt::format(" --policy {}", kNames[static_cast<size_t>(*o.placement)]);
  }
  if (!o.group) command += " --no-group";
  if (!o.prefix_cache) command += " --no-prefix-cache";
  if (!o.drafts) command += " --no-drafts";
  if (!o.handoff) command += " --no-handoff";
  if (!o.only.empty()) command += fmt::format(" --only {}", fmt::join(o.only, ","));
  if (o.prompt_tokens_max > 0) command += fmt::format(" --cut-prompts {}", o.prompt_tokens_max);
  if (o.output_tokens_max > 0) command += fmt::format(" --cut-outputs {}", o.output_tokens_max);
  return command;
}

class Shrinker {
 public:
  Shrinker(uint64_t seed, const WorkloadOptions& options, std::string message)
      : found_{.seed = seed, .message = std::move(message), .smallest = options, .command = {}} {}

  SimulationFailure Go() {
    for (uint32_t f = 0; f < static_cast<uint32_t>(Fault::kCount); ++f) {
      Try([&](WorkloadOptions& o) { o.faults &= ~(1u << f); });
    }
    Try([](WorkloadOptions& o) { o.overlap_depth = 0; });
    Try([](WorkloadOptions& o) { o.drafts = false; });
    Try([](WorkloadOptions& o) { o.handoff = false; });
    Try([](WorkloadOptions& o) { o.group = false; });
    DropRequests();
    int32_t prompt = 1, output = 1;
    for (const ArrivingRequest& r : MakeWorkload(found_.seed, found_.smallest).requests) {
      prompt = std::max(prompt, static_cast<int32_t>(r.request.prompt.size()));
      output = std::max(output, r.request.stop.new_tokens_max);
    }
    Lower(prompt, &WorkloadOptions::prompt_tokens_max);
    Lower(output, &WorkloadOptions::output_tokens_max);
    DropRequests();
    found_.command = CommandOf(found_.seed, found_.smallest);
    return std::move(found_);
  }

 private:
  template <class Change>
  bool Try(Change change) {
    WorkloadOptions smaller = found_.smallest;
    change(smaller);
    std::string message = MessageOf(found_.seed, smaller);
    if (message.empty()) return false;
    found_.smallest = std::move(smaller);
    found_.message = std::move(message);
    return true;
  }

  // Halves, quarters, …, single ones, each left out when the rest still fails.
  void DropRequests() {
    std::vector<int32_t> kept;
    for (const ArrivingRequest& r : MakeWorkload(found_.seed, found_.smallest).requests) {
      kept.push_back(static_cast<int32_t>(r.request.id.value));
    }
    for (size_t size = kept.size() / 2; size > 0; size /= 2) {
      for (size_t at = 0; at < kept.size() && kept.size() > 1;) {
        std::vector<int32_t> rest = kept;
        const size_t end = std::min(at + size, rest.size());
        rest.erase(rest.begin() + static_cast<ptrdiff_t>(at),
                   rest.begin() + static_cast<ptrdiff_t>(end));
        if (!rest.empty() && Try([&](WorkloadOptions& o) { o.only = rest; })) {
          kept = rest;
        } else {
          at += size;
        }
      }
    }
  }

  // The least bound that still fails, by halving the distance.
  void Lower(int32_t most, int32_t WorkloadOptions::* bound) {
    int32_t passes = 0;
    while (most - passes > 1) {
      const int32_t middle = passes + (most - passes) / 2;
      (Try([&](WorkloadOptions& o) { o.*bound = middle; }) ? most : passes) = middle;
    }
  }

  SimulationFailure found_;
};

Status CheckOptions(const SimulationOptions& o) {
  if (o.seeds <= 0 && o.steps <= 0 && o.minutes <= 0) {
    return Error{ErrorCode::kInvalid,
                 "nothing ends the simulation: give a number of seeds, steps or minutes"};
  }
  return {};
}

int64_t ShareOf(int64_t all, int32_t index, int32_t processes) {
  return all <= 0 ? 0 : (all - index + processes - 1) / processes;
}

}  // namespace

SimulationFailure Shrink(uint64_t seed, const WorkloadOptions& options, std::string message) {
  return Shrinker(seed, options, std::move(message)).Go();
}

Result<SimulationReport> RunSimulation(const SimulationOptions& options,
                                       const std::function<void(int64_t, int64_t)>& progress) {
  RETURN_IF_ERROR(CheckOptions(options));
  const int64_t begin_us = MonotonicUs();
  const auto count = static_cast<size_t>(options.processes);
  std::vector<std::unique_ptr<SharedValue<Worker>>> workers;
  std::vector<std::unique_ptr<IsolatedProcess>> processes;
  for (size_t i = 0; i < count; ++i) workers.push_back(std::make_unique<SharedValue<Worker>>());
  for (size_t i = 0; i < count; ++i) {
    const auto index = static_cast<int32_t>(i);
    const Share share{options, index, ShareOf(options.seeds, index, options.processes),
                      ShareOf(options.steps, index, options.processes)};
    // A share of 0 would have no limit.
    const bool no_seed = options.seeds > 0 && share.seeds == 0;
    if (no_seed || (options.steps > 0 && share.steps == 0)) continue;
    processes.push_back(
        std::make_unique<IsolatedProcess>([&] { return RunShare(share, **workers[i]); }, 0));
  }
  for (bool running = true; running;) {
    std::this_thread::sleep_for(kLook);
    running = false;
    int64_t seeds = 0, steps = 0;
    bool failed = false;
    for (auto& process : processes) {
      const bool ended = process->Ended();
      running |= !ended;
      failed |= ended && !process->Wait().clean;
    }
    for (auto& worker : workers) {
      seeds += (*worker)->seeds;
      steps += (*worker)->steps;
      if (failed) (*worker)->stop = true;
    }
    if (progress) progress(seeds, steps);
  }
  SimulationReport report;
  std::string message;
  for (size_t i = 0; i < processes.size(); ++i) {
    Worker& worker = **workers[i];
    const IsolatedEnd end = processes[i]->Wait();
    report.seeds += worker.seeds;
    report.total.Add(worker.total);
    report.resident_early += worker.resident_early;
    report.resident_end += worker.resident_end;
    if (end.clean || (report.failure && report.failure->seed < worker.seed)) continue;
    report.failure.emplace();
    report.failure->seed = worker.seed;
    report.failure->message = end.said.empty() ? "it crashed" : end.said;
  }
  report.seconds = static_cast<double>(MonotonicUs() - begin_us) * 1e-6;
  if (report.failure && !options.soak) {
    report.failure =
        Shrink(report.failure->seed, options.workload, std::move(report.failure->message));
  }
  return report;
}

}  // namespace braid
