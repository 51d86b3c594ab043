// For tests: a scheduler without a model. Prompts count upwards, every row that samples gets the
// same token, and the accounts are recounted after every step.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace braid {

// What an executor says that samples `token` wherever it samples.
inline StepDone ResultOf(const Plan& plan, TokenId token = 7) {
  StepDone done{plan.step, {}};
  for (const Row& row : plan.rows) {
    RowResult result;
    result.request = row.request;
    if (row.sample) result.token = token;
    if (row.prompt_logprobs) result.prompt_logprobs.resize(static_cast<size_t>(row.token_count));
    done.rows.push_back(std::move(result));
  }
  return done;
}

class SchedulerFixture : public ::testing::Test {
 protected:
  SchedulerFixture() : SchedulerFixture(BlockConfig(200)) {}
  explicit SchedulerFixture(const SchedulerConfig& config) : s_(*Scheduler::Create(config)) {}

  // One block per page, so that memory is counted in blocks.
  static SchedulerConfig BlockConfig(int32_t pages = 200) {
    return {.cache = {.groups = {{"full", GroupKind::kFull, 64, 1},
                                 {"state", GroupKind::kState, 64, 1}},
                      .page_bytes = 64,
                      .pages = pages + 1},
            .context_tokens_max = 4096,
            .step_tokens_max = 1024,
            .running_max = 4,
            .vocabulary = 5000};
  }
  void Use(const SchedulerConfig& config) { s_ = *Scheduler::Create(config); }

  // Tokens first, first + 1, …: prompts with equal `first` share their prefix.
  Request Make(int32_t tokens, int32_t new_tokens, TokenId first = 10) {
    Request r;
    r.id = RequestId(next_id_++);
    r.prompt.resize(static_cast<size_t>(tokens));
    std::iota(r.prompt.begin(), r.prompt.end(), first);
    r.stop.new_tokens_max = new_tokens;
    return r;
  }
  RequestId Send(const Request& r) {
    s_.Apply(Submit{r});
    return r.id;
  }
  void CompleteRow(StepDone done) {
    s_.Apply(std::move(done));
    Take();
  }
  void CompleteRow(const Plan& plan) { CompleteRow(ResultOf(plan)); }
  void Take() {
    for (Output& o : s_.TakeOutputs()) {
      std::vector<TokenId> tokens = std::exchange(outputs_[o.id].tokens, {});
      tokens.insert(tokens.end(), o.tokens.begin(), o.tokens.end());
      outputs_[o.id] = std::move(o);
      outputs_[o.id].tokens = std::move(tokens);
    }
    const Status audit = s_.Audit();
    EXPECT_TRUE(audit.ok()) << audit.error().message;
  }
  Plan Step() {
    Plan plan = s_.NextPlan();
    if (!plan.empty()) CompleteRow(plan);
    return plan;
  }
  void Drain() {
    for (int i = 0; i < 10000 && !s_.idle(); ++i) Step();
    EXPECT_TRUE(s_.idle());
    EXPECT_EQ(s_.stats().pages_used, 0);
  }
  // Its last output, with all of its tokens.
  Output Ask(const Request& r) {
    Send(r);
    Drain();
    return outputs_[r.id];
  }
  int32_t Reused(const Request& r) { return Ask(r).cached_tokens; }
  static std::vector<int64_t> Ids(const Plan& plan) {
    std::vector<int64_t> ids;
    for (const Row& row : plan.rows) ids.push_back(row.request.value);
    return ids;
  }

  Scheduler s_;
  std::map<RequestId, Output> outputs_;
  int64_t next_id_ = 0;
};

}  // namespace braid
