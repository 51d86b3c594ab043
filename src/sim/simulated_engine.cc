// See the header.
#include "sim/simulated_engine.h"

#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "scheduler/planning/plan_hash.h"

namespace braid {
namespace {

Scheduler MakeScheduler(const SchedulerConfig& config) {
  auto scheduler = Scheduler::Create(config);
  CHECK(scheduler.ok(), "{}", scheduler.error().message);
  return *std::move(scheduler);
}

HashExecutorOptions ExecutorOptions(const Workload& w) {
  HashExecutorOptions options{.dp_ranks = w.config.dp_ranks,
                              .running_max = w.config.running_max,
                              .held = true,
                              .late = w.late,
                              .before_step = {},
                              .on_launch = {},
                              .exchange = {},
                              .row_fails = {},
                              .step_lost = {},
                              .drafts_max = w.config.draft_tokens_max,
                              .drafts_right = w.drafts_right,
                              .drafts_seed = w.error_seed};
  const auto one_in = [seed = w.error_seed](uint64_t key, int32_t n) {
    return RandomBits(seed, key) % static_cast<uint64_t>(n) == 0;
  };
  if (w.row_error_one_in > 0) {
    options.row_fails = [one_in, n = w.row_error_one_in](RequestId id, int32_t length) {
      return one_in(static_cast<uint64_t>(id.value) * 100000 + static_cast<uint64_t>(length), n);
    };
  }
  if (w.lost_step_one_in > 0) {
    options.step_lost = [one_in, n = w.lost_step_one_in](int64_t order) {
      return one_in(static_cast<uint64_t>(order) | uint64_t{1} << 62, n);
    };
  }
  return options;
}

}  // namespace

SimulatedRank::SimulatedRank(const Workload& w)
    : executor(w.config.cache, w.config.vocabulary, ExecutorOptions(w)),
      driver(MakeScheduler(w.config), executor,
             {.overlap_depth = w.overlap_depth, .audit_every_us = 1, .now_us = [this] {
                return now_us;
              }}) {}

SimulatedEngine::SimulatedEngine(const Workload& w) : clock_seed_(w.error_seed) {
  for (int32_t i = 0; i < w.ranks; ++i) {
    ranks_.push_back(std::make_unique<SimulatedRank>(w));
  }
}

void SimulatedEngine::Begin(const Workload& wave, std::function<void(const Plan&)> on_launch) {
  for (auto& rank : ranks_) {
    SimulatedRank* const r = rank.get();
    const bool leads = r == &leader();
    HashExecutorOptions options = ExecutorOptions(wave);
    options.follows = !leads;
    options.exchange = [this, leads](std::vector<Event> local) -> Result<std::vector<Event>> {
      if (lost_) return Error{ErrorCode::kUnavailable, "rank 1 is lost"};
      if (leads) agreed_ = std::move(local);
      return agreed_;
    };
    options.on_launch = [r, leads, seen = leads ? on_launch : nullptr](const Plan& plan) {
      r->plans = HashPlan(plan, r->plans);
      if (seen) seen(plan);
    };
    r->executor.SetOptions(std::move(options));
  }
}

Result<bool> SimulatedEngine::Turn() {
  std::vector<bool> goes_on;
  for (auto& rank : ranks_) {
    rank->now_us += static_cast<int64_t>(RandomBits(clock_seed_, ++ticks_) % 20000);
    rank->plans = 0;
    goes_on.push_back(rank->driver.Turn());
    if (rank->plans != leader().plans || goes_on.back() != goes_on.front()) {
      return Error{ErrorCode::kInternal, "I-24: two ranks do not do the same"};
    }
    if (rank->driver.stats().repairs > 0) {
      return Error{ErrorCode::kInternal, "I-1: an audit of the driver has failed"};
    }
  }
  ended_ = !goes_on.front();
  return !ended_;
}

void SimulatedEngine::DropStored(uint64_t draw) {
  const std::vector<KnownPart> stored = executor().Stored();
  if (stored.empty()) return;
  const KnownPart part = stored[draw % stored.size()];
  for (auto& rank : ranks_) rank->executor.DropStored(part);
  if (draw % 3 > 0) driver().Post(PagesKnown{.added = {}, .dropped = {part}});
}

void SimulatedEngine::AdoptTier(SimulatedEngine& from) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i]->executor.AdoptTier(from.ranks_[i]->executor);
  }
  driver().Post(PagesKnown{.added = executor().Stored(), .dropped = {}});
}

StepDone SimulatedEngine::EndStep() {
  StepDone done;
  for (auto& rank : ranks_) {
    done = rank->executor.EndStep();
    rank->driver.Post(done);
  }
  return done;
}

PagesMoved SimulatedEngine::EndFakeMove(int32_t index, bool fails) {
  PagesMoved done;
  for (auto& rank : ranks_) done = rank->executor.EndFakeMove(index, fails);
  driver().Post(done);
  return done;
}

}  // namespace braid
