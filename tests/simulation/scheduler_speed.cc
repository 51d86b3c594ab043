// What a step of the scheduler costs: 256 sequences decode in an arena of 100,000 blocks. Prints
// the time of NextPlan + Apply, and of TakeOutputs, per step. Not a test: run by hand, alone on the
// machine.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "scheduler/scheduler.h"

namespace {

braid::SchedulerConfig Config(int32_t parents) {
  return {.cache = {.groups = {{"full", braid::GroupKind::kFull, 1024, 4},
                               {"state", braid::GroupKind::kState, 4096, 1}},
                    .parent_bytes = 4096,
                    .parents = parents},
          .context_tokens_max = 100000,
          .step_tokens_max = 8192,
          .running_max = 256,
          .vocabulary = 1000};
}

// Leaves so many blocks in the prefix cache: conversations of 64 blocks that are idle now.
void FillCache(braid::Scheduler& scheduler, int64_t blocks) {
  for (int64_t id = 1000; id < 1000 + blocks / 64; ++id) {
    braid::Request request;
    request.id = braid::RequestId(id);
    request.prompt.assign(64 * 64, static_cast<braid::TokenId>(id % 1000));
    request.prompt[0] = static_cast<braid::TokenId>(id / 1000);
    scheduler.Apply(braid::Submit{std::move(request)});
    while (!scheduler.idle()) {
      const braid::Plan plan = scheduler.NextPlan();
      braid::StepDone done{plan.step, {}};
      for (const braid::Row& row : plan.rows) {
        done.rows.push_back({.request = row.request,
                             .token = row.sample ? 7 : -1,
                             .logprob = {},
                             .prompt_logprobs = {},
                             .error = {}});
      }
      scheduler.Apply(std::move(done));
      scheduler.TakeOutputs();
    }
  }
}

void Measure(int32_t parents, int64_t cached) {
  auto scheduler = braid::Scheduler::Create(Config(parents));
  CHECK(scheduler.ok(), "{}", scheduler.error().message);
  FillCache(*scheduler, cached);
  for (int64_t i = 0; i < 256; ++i) {
    braid::Request request;
    request.id = braid::RequestId(i);
    request.prompt.assign(static_cast<size_t>(500 + i), 1);
    request.stop.new_tokens_max = 20000;
    scheduler->Apply(braid::Submit{std::move(request)});
  }
  std::vector<double> plan_us, output_us;
  for (int step = 0; step < 5000; ++step) {
    const auto t0 = braid::MonotonicUs();
    const braid::Plan plan = scheduler->NextPlan();
    const auto t1 = braid::MonotonicUs();
    braid::StepDone done{plan.step, {}};
    done.rows.resize(plan.rows.size());
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      done.rows[i].request = plan.rows[i].request;
      if (plan.rows[i].sample) done.rows[i].token = 7;
    }
    const bool decode = plan.rows.size() == 256 && plan.tokens.size() == 256;
    const braid::Event event = std::move(done);
    const auto t2 = braid::MonotonicUs();
    scheduler->Apply(event);
    const auto t3 = braid::MonotonicUs();
    const size_t outputs = scheduler->TakeOutputs().size();
    const auto t4 = braid::MonotonicUs();
    if (!decode || outputs != 256) continue;
    plan_us.push_back(static_cast<double>(t1 - t0 + t3 - t2));
    output_us.push_back(static_cast<double>(t4 - t3));
  }
  std::sort(plan_us.begin(), plan_us.end());
  std::sort(output_us.begin(), output_us.end());
  const auto at = [](const std::vector<double>& v, double q) {
    return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))];
  };
  double sum = 0;
  for (double us : plan_us) sum += us;
  std::printf(
      "%7d parents, %7lld blocks cached: plan + apply %.1f us median, %.1f us p99 (%.1f M rows/s); "
      "outputs %.1f us\n",
      parents - 1, static_cast<long long>(cached), at(plan_us, 0.5), at(plan_us, 0.99),
      256.0 * static_cast<double>(plan_us.size()) / sum, at(output_us, 0.5));
}

}  // namespace

int main() {
  for (int32_t parents : {40001, 100001, 1000001}) Measure(parents, 0);
  for (int64_t cached : {1000, 100000, 1000000}) Measure(1000001, cached);
}
