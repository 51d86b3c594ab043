// What a step of the scheduler costs when 256 sequences decode, for arenas of several sizes, caches
// of several fillings and crowds of conversations that were served before. Prints one line each. A
// window is 64 steps, in which every sequence fills a block once; the best window says what the
// work costs, the median what it cost here. Not a test: run by hand.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "scheduler/scheduler.h"

namespace {

constexpr int kRows = 256;
constexpr int kWindowSteps = 64;
constexpr int kWindows = 100;

braid::SchedulerConfig Config(int32_t pages) {
  return {.cache = {.groups = {{"full", braid::GroupKind::kFull, 1024, 4},
                               {"state", braid::GroupKind::kState, 4096, 1}},
                    .page_bytes = 4096,
                    .pages = pages},
          .context_tokens_max = 100000,
          .step_tokens_max = 8192,
          .running_max = kRows,
          .vocabulary = 1000};
}

struct Case {
  int32_t pages;         // of the arena
  int64_t cached;        // blocks that earlier conversations left in the prefix cache
  int32_t conversation;  // blocks of each of them
};

// Takes the place of the executor: every row that samples gets token 7.
braid::Event Done(const braid::Plan& plan) {
  braid::StepDone done{plan.step, {}};
  done.rows.resize(plan.rows.size());
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    done.rows[i].request = plan.rows[i].request;
    if (plan.rows[i].sample) done.rows[i].token = 7;
  }
  return done;
}

void FillCache(braid::Scheduler& scheduler, const Case& c) {
  for (int64_t i = 0; i < c.cached / c.conversation; ++i) {
    braid::Request request;
    request.id = braid::RequestId(1000 + i);
    request.prompt.assign(static_cast<size_t>(c.conversation) * 64,
                          static_cast<braid::TokenId>(i % 1000));
    request.prompt[0] = static_cast<braid::TokenId>(i / 1000);
    scheduler.Apply(braid::Submit{std::move(request)});
    while (!scheduler.idle()) {
      scheduler.Apply(Done(scheduler.NextPlan()));
      scheduler.TakeOutputs();
    }
  }
}

// Microseconds per step: the scheduler's own work, and handing the tokens out.
struct Cost {
  double work, outputs;
};

Cost MeasureWindow(braid::Scheduler& scheduler) {
  int64_t work_us = 0, output_us = 0;
  for (int step = 0; step < kWindowSteps; ++step) {
    const int64_t t0 = braid::MonotonicUs();
    const braid::Plan plan = scheduler.NextPlan();
    const int64_t t1 = braid::MonotonicUs();
    CHECK(plan.rows.size() == kRows && plan.tokens.size() == kRows);
    const braid::Event event = Done(plan);
    const int64_t t2 = braid::MonotonicUs();
    scheduler.Apply(event);
    const int64_t t3 = braid::MonotonicUs();
    CHECK(scheduler.TakeOutputs().size() == kRows);
    work_us += t1 - t0 + t3 - t2;
    output_us += braid::MonotonicUs() - t3;
  }
  return {static_cast<double>(work_us) / kWindowSteps,
          static_cast<double>(output_us) / kWindowSteps};
}

void Measure(const Case& c) {
  auto scheduler = braid::Scheduler::Create(Config(c.pages + 1));
  CHECK(scheduler.ok(), "{}", scheduler.error().message);
  FillCache(*scheduler, c);
  for (int64_t i = 0; i < kRows; ++i) {
    braid::Request request;
    request.id = braid::RequestId(i);
    request.prompt.assign(static_cast<size_t>(500 + i), 1);
    request.stop.new_tokens_max = 20000;
    scheduler->Apply(braid::Submit{std::move(request)});
  }
  for (int step = 0; step < 100; ++step) {  // the prompts, and what is done for the first time
    scheduler->Apply(Done(scheduler->NextPlan()));
    scheduler->TakeOutputs();
  }
  std::vector<Cost> windows;
  for (int i = 0; i < kWindows; ++i) windows.push_back(MeasureWindow(*scheduler));
  const auto at = [&](double Cost::* part, size_t rank) {
    std::sort(windows.begin(), windows.end(),
              [&](const Cost& a, const Cost& b) { return a.*part < b.*part; });
    return windows[rank].*part;
  };
  const double best = at(&Cost::work, 0);
  std::printf("%8d | %7lld | %13lld | %9.1f | %6.1f | %11.1f | %7.1f\n", c.pages,
              static_cast<long long>(c.cached), static_cast<long long>(c.cached / c.conversation),
              best, at(&Cost::work, kWindows / 2), kRows / best, at(&Cost::outputs, 0));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr Case kCases[] = {{10000, 0, 64},      {100000, 0, 64},        {100000, 50000, 64},
                             {1000000, 1000, 64}, {1000000, 1000000, 64}, {1000000, 200000, 4}};
  const int only = argc > 1 ? std::atoi(argv[1]) : -1;  // one case, to profile it
  std::printf("256 decode rows; microseconds a step: the scheduler's own work, outputs beside\n");
  std::printf(" pages |  cached | conversations | work best | median | M rows/s    | outputs\n");
  for (int i = 0; i < static_cast<int>(std::size(kCases)); ++i) {
    if (only < 0 || only == i) Measure(kCases[i]);
  }
}
