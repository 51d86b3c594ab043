// For tests: the scheduler's parts, connected as in the scheduler, each to be called by itself.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>

#include "scheduler/admission/admission_control.h"
#include "scheduler/dp_rank.h"
#include "scheduler/life_cycle/life_cycle.h"
#include "scheduler/moves/page_moves.h"
#include "scheduler/planning/step_planner.h"

namespace braid {

class PartsFixture : public ::testing::Test {
 protected:
  struct Parts {
    explicit Parts(const SchedulerConfig& c)
        : config(c),
          ranks(MakeRanks(config, tier)),
          admission(config, ranks),
          moves(config, ranks, tier),
          life_cycle(config, ranks, admission, moves),
          planner(config, ranks, admission, moves, life_cycle) {}

    const SchedulerConfig config;
    PageDirectory tier;
    DpRanks ranks;
    AdmissionControl admission;
    PageMoves moves;
    LifeCycle life_cycle;
    StepPlanner planner;
  };

  PartsFixture() { Use(Config()); }
  void Use(const SchedulerConfig& config) { parts_ = std::make_unique<Parts>(config); }

  // A block of either group per page, so that memory is counted in blocks.
  static SchedulerConfig Config() {
    return {.cache = {.groups = {{"full", GroupKind::kFull, 64, 1},
                                 {"state", GroupKind::kState, 64, 1}},
                      .page_bytes = 64,
                      .pages = 201},
            .context_tokens_max = 4096,
            .step_tokens_max = 1024,
            .running_max = 4,
            .vocabulary = 5000};
  }

  // Tokens first, first + 1, …
  Request Make(int32_t tokens, int32_t new_tokens = 8, TokenId first = 10) {
    Request r;
    r.id = RequestId(next_id_++);
    r.prompt.resize(static_cast<size_t>(tokens));
    std::iota(r.prompt.begin(), r.prompt.end(), first);
    r.stop.new_tokens_max = new_tokens;
    return r;
  }
  // The sequence that a request becomes.
  Sequence& Send(const Request& r) {
    parts_->life_cycle.Submit(r);
    return *parts_->life_cycle.sequences().at(r.id);
  }
  DpRank& rank(int32_t r = 0) { return parts_->ranks[DpRankId(r)]; }

  // What comes back for a plan: `token` wherever a row samples.
  static StepDone DoneOf(const Plan& plan, TokenId token = 7) {
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
  void Complete(const StepDone& done) {
    const std::vector<RowInFlight>& rows = parts_->planner.TakeStep(done);
    for (size_t i = 0; i < rows.size(); ++i) {
      parts_->life_cycle.CompleteRow(rows[i], done.rows[i]);
    }
  }
  Plan Step() {
    Plan plan = parts_->planner.Next();
    if (!plan.empty()) Complete(DoneOf(plan));
    return plan;
  }

  std::unique_ptr<Parts> parts_;
  int64_t next_id_ = 0;
};

}  // namespace braid
