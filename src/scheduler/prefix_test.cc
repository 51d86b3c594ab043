// Which prefixes a request finds, as plans show it. Numbers in names (C2.n, C3.n, C5.n) are those
// of the behavioural scenarios, in blocks of 64 tokens.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "scheduler/scheduler.h"

namespace braid {
namespace {

class PrefixTest : public ::testing::Test {
 protected:
  static SchedulerConfig Config() {
    return {.cache = {.groups = {{"full", GroupKind::kFull, 64, 1},
                                 {"state", GroupKind::kState, 64, 1}},
                      .parent_bytes = 64,
                      .parents = 200},
            .context_tokens_max = 4096,
            .step_tokens_max = 2048,
            .running_max = 4,
            .vocabulary = 5000};
  }
  void Use(const SchedulerConfig& config) { scheduler_ = *Scheduler::Create(config); }
  // Tokens first, first + 1, …: two prompts with equal `first` share their prefix.
  Request MakeRequest(int32_t tokens, int32_t new_tokens, TokenId first = 10) {
    Request r;
    r.id = RequestId(next_id_++);
    r.prompt.resize(static_cast<size_t>(tokens));
    std::iota(r.prompt.begin(), r.prompt.end(), first);
    r.stop.new_tokens_max = new_tokens;
    return r;
  }
  Output Ask(const Request& request) {
    scheduler_.Apply(Submit{request});
    Output last;
    answer_.clear();
    while (!scheduler_.idle()) {
      const Plan plan = scheduler_.NextPlan();
      StepDone done{plan.step, {}};
      for (const Row& row : plan.rows) {
        done.rows.push_back({.request = row.request,
                             .token = row.sample ? 7 : -1,
                             .logprob = {},
                             .prompt_logprobs = {},
                             .error = {}});
      }
      scheduler_.Apply(std::move(done));
      for (Output& o : scheduler_.TakeOutputs()) {
        answer_.insert(answer_.end(), o.tokens.begin(), o.tokens.end());
        if (o.finish) last = std::move(o);
      }
    }
    EXPECT_TRUE(scheduler_.Audit().ok());
    return last;
  }
  int32_t Reused(const Request& request) { return Ask(request).cached_tokens; }

  Scheduler scheduler_ = *Scheduler::Create(Config());
  std::vector<TokenId> answer_;
  int64_t next_id_ = 0;
};

TEST_F(PrefixTest, C2_14_AtLeastOneTokenIsComputedAgain) {
  Ask(MakeRequest(256, 1));
  const Output again = Ask(MakeRequest(256, 1));
  EXPECT_EQ(again.cached_tokens, 192);
  EXPECT_EQ(again.reuse.stop, ReuseStop::kComplete);
}

TEST_F(PrefixTest, C2_21_NothingIsReusedWhenTheCacheIsOff) {
  SchedulerConfig config = Config();
  config.prefix_cache = false;
  Use(config);
  Ask(MakeRequest(256, 1));
  EXPECT_EQ(Ask(MakeRequest(256, 1)).reuse.stop, ReuseStop::kOff);
  EXPECT_EQ(scheduler_.stats().parents_cached, 0);
}

TEST_F(PrefixTest, C2_22_TenantsSaltsAndRanksDoNotMeet) {
  SchedulerConfig config = Config();
  config.dp_ranks = 2;
  Use(config);
  Request mine = MakeRequest(256, 1), other = MakeRequest(256, 1), rank = MakeRequest(256, 1);
  Request salted = MakeRequest(256, 1), swapped = MakeRequest(256, 1);
  mine.tenant = "a";
  mine.dp_rank = other.dp_rank = salted.dp_rank = swapped.dp_rank = 0;
  other.tenant = "b";
  salted.tenant = "a";
  salted.cache_salt = "b";
  swapped.cache_salt = "a";
  rank.tenant = "a";
  rank.dp_rank = 1;
  Ask(mine);
  EXPECT_EQ(Reused(other), 0);
  EXPECT_EQ(Reused(rank), 0);
  EXPECT_EQ(Reused(salted), 0);
  EXPECT_EQ(Reused(swapped), 0);
  mine.id = RequestId(next_id_++);
  EXPECT_EQ(Reused(mine), 192);
}

TEST_F(PrefixTest, C2_24_AStateBeyondTheSharedPartIsOfNoUse) {
  Ask(MakeRequest(400, 1));
  const Output shorter = Ask(MakeRequest(200, 1));
  EXPECT_EQ(shorter.cached_tokens, 0);
  EXPECT_EQ(shorter.reuse.known, 192);
  EXPECT_EQ(shorter.reuse.stop, ReuseStop::kNoSnapshot);
}

TEST_F(PrefixTest, C2_28_C3_33_TheThirdRequestHitsTheBranchThatTheSecondRevealed) {
  std::vector<int32_t> reused;
  for (TokenId tail : {1000, 2000, 3000}) {
    Request r = MakeRequest(320, 1);
    for (TokenId i = 0; i < 300; ++i) r.prompt.push_back(tail + i);
    reused.push_back(Reused(r));
  }
  EXPECT_EQ(reused, (std::vector<int32_t>{0, 0, 320}));
}

TEST_F(PrefixTest, C3_40_C3_41_TheNextTurnReusesPromptAndAnswer) {
  Request turn = MakeRequest(100, 200);
  Ask(turn);
  Request next = MakeRequest(0, 1);
  next.prompt = turn.prompt;
  next.prompt.insert(next.prompt.end(), answer_.begin(), answer_.end());
  next.prompt.resize(400, 3);
  EXPECT_EQ(Reused(next), 256);  // C3.41: of 300 tokens the last was never stored
}

TEST_F(PrefixTest, C5_81_FlushingForgetsWhatNobodyUses) {
  Ask(MakeRequest(256, 1));
  EXPECT_GT(scheduler_.stats().parents_cached, 0);
  scheduler_.Apply(FlushCache{});
  EXPECT_EQ(scheduler_.stats().parents_cached, 0);
  EXPECT_EQ(Reused(MakeRequest(256, 1)), 0);
}

TEST_F(PrefixTest, C5_65_TheConversationUsedLongestAgoMakesRoom) {
  SchedulerConfig config = Config();
  config.cache.parents = 1 + 30;
  Use(config);
  for (TokenId first : {10, 1000, 2000, 3000}) Ask(MakeRequest(500, 1, first));
  EXPECT_EQ(Reused(MakeRequest(500, 1, 3000)), 448);
  EXPECT_EQ(Ask(MakeRequest(500, 1, 10)).reuse.stop, ReuseStop::kEvicted);
}

}  // namespace
}  // namespace braid
