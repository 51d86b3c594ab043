// One prefill for requests that begin alike: who waits for whom, who does not, and what becomes of
// those who wait when the other ends. Numbers in names (C8.n) are those of the behavioural
// scenarios.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

class SharedPrefixTest : public SchedulerFixture {
 protected:
  SharedPrefixTest() : SchedulerFixture(Config()) {}
  static SchedulerConfig Config() {
    SchedulerConfig config = BlockConfig(400);
    config.step_tokens_max = 2048;
    config.running_max = 16;
    return config;
  }
  // `shared` tokens that all have, and 100 of one's own.
  Request Fork(int32_t shared, TokenId own, int32_t new_tokens = 1) {
    Request r = Make(shared, new_tokens);
    for (TokenId i = 0; i < 100; ++i) r.prompt.push_back(own + i);
    return r;
  }
  // Where a request's first row of a plan begins; -1: it has none.
  static int32_t StartIn(const Plan& plan, RequestId id) {
    for (const Row& row : plan.rows) {
      if (row.request == id) return row.start;
    }
    return -1;
  }
  static int32_t EndIn(const Plan& plan, RequestId id) {
    for (const Row& row : plan.rows) {
      if (row.request == id) return row.start + row.token_count;
    }
    return -1;
  }
  int64_t BlocksUsed() const { return s_.stats().blocks_used[0]; }
};

TEST_F(SharedPrefixTest, C8_101_C8_102_TheChoicesOfOnePromptAreComputedOnceAndStoredOnce) {
  for (int i = 0; i < 8; ++i) Send(Make(3000, 100));
  Step();
  EXPECT_EQ(s_.stats().running, 1);
  while (s_.stats().running < 8) ASSERT_FALSE(Step().empty());
  Step();
  EXPECT_EQ(s_.stats().prefill_tokens, 3000 + 7 * (3000 - 2944));
  // 46 blocks that all share, and of each one's own the last of the prompt and one of output.
  EXPECT_LE(BlocksUsed(), 46 + 8 * 2);
  Drain();
  for (const auto& [id, output] : outputs_) {
    EXPECT_EQ(output.cached_tokens, id == RequestId(0) ? 0 : 2944);
    EXPECT_EQ(output.output_tokens, 100);
  }
}

TEST_F(SharedPrefixTest, C8_103_TheLeaderLeavesAStateWhereEachFollowerGoesOn) {
  const RequestId leader = Send(Fork(1280, 3000)), far = Send(Fork(1280, 4000)),
                  near = Send(Fork(640, 4500));
  EXPECT_EQ(EndIn(Step(), leader), 640);
  const Plan second = Step();
  EXPECT_EQ(EndIn(second, leader), 1280);
  EXPECT_EQ(StartIn(second, near), 640);
  EXPECT_EQ(StartIn(second, far), -1);
  EXPECT_EQ(StartIn(Step(), far), 1280);
  Drain();
}

TEST_F(SharedPrefixTest, C8_104_WhoArrivesWhileAPrefixIsComputedWaitsForTheRestOfIt) {
  const RequestId leader = Send(Make(3500, 1));
  EXPECT_EQ(EndIn(Step(), leader), 2048);
  const RequestId late = Send(Fork(3000, 4500));
  const Plan second = Step();
  EXPECT_EQ(EndIn(second, leader), 2944);
  EXPECT_EQ(StartIn(second, late), -1);
  EXPECT_EQ(StartIn(Step(), late), 2944);
  Drain();
  EXPECT_EQ(outputs_[late].reuse.stop, ReuseStop::kNeverSeen);
}

TEST_F(SharedPrefixTest, C8_105_OthersAreAdmittedPastAFollower) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 256;
  Use(config);
  Send(Make(2000, 1));
  const RequestId follower = Send(Make(2000, 1));
  const RequestId other = Send(Make(100, 1, 3000));
  EXPECT_EQ(StartIn(Step(), other), 0);
  EXPECT_EQ(s_.stats().waiting, 1);
  Drain();
  EXPECT_EQ(outputs_[follower].cached_tokens, 1984);
}

TEST_F(SharedPrefixTest, C8_105_ButASlotStaysFreeForIt) {
  SchedulerConfig config = Config();
  config.running_max = 2;
  config.step_tokens_max = 256;
  Use(config);
  Send(Make(2000, 50));
  const RequestId follower = Send(Make(2000, 1));
  const RequestId other = Send(Make(100, 1, 3000));
  Plan plan = Step();
  while (StartIn(plan, follower) < 0) {
    EXPECT_EQ(StartIn(plan, other), -1);
    ASSERT_FALSE(plan.empty());
    plan = Step();
  }
  EXPECT_EQ(StartIn(plan, follower), 1984);
  Drain();
  // A claim ends with the follower.
  Send(Make(2000, 50, 1000));
  const Request again = Make(2000, 1, 1000), last = Make(100, 1, 4000);
  Send(again);
  Send(last);
  EXPECT_EQ(StartIn(Step(), last.id), -1);
  s_.Apply(Abort{again.id});
  EXPECT_EQ(StartIn(Step(), last.id), 0);
  Drain();
}

TEST_F(SharedPrefixTest, C8_106_WhenTheLeaderIsAbortedTheNextOneLeads) {
  const RequestId leader = Send(Make(3000, 1));
  for (int i = 0; i < 4; ++i) Send(Make(3000, 1));
  Step();
  s_.Apply(Abort{leader});
  EXPECT_EQ(StartIn(Step(), RequestId(1)), 2048);  // what the first has published
  EXPECT_EQ(s_.stats().running, 1);
  Drain();
  for (int64_t id = 2; id < 5; ++id) EXPECT_EQ(outputs_[RequestId(id)].cached_tokens, 2944);
}

TEST_F(SharedPrefixTest, C8_106_WhenTheLeaderFailsTheNextOneLeads) {
  for (int i = 0; i < 2; ++i) Send(Make(3000, 1));
  const Plan plan = s_.NextPlan();
  StepDone done = ResultOf(plan);
  done.rows[0].error = "lost";
  CompleteRow(std::move(done));
  EXPECT_EQ(StartIn(Step(), RequestId(1)), 0);
  Drain();
  EXPECT_EQ(outputs_[RequestId(1)].output_tokens, 1);
}

TEST_F(SharedPrefixTest, C8_107_AFollowerThatIsAbortedLeavesNoTrace) {
  const RequestId leader = Send(Fork(640, 3000));
  const RequestId follower = Send(Fork(640, 4000));
  Send(Fork(640, 4500));
  s_.NextPlan();  // admits the leader, and would cut its prompt
  s_.Apply(Abort{follower});
  Take();
  EXPECT_EQ(outputs_[follower].finish, FinishReason::kAbort);
  EXPECT_EQ(s_.stats().waiting, 1);
  (void)leader;
}

TEST_F(SharedPrefixTest, C8_108_NobodyWaitsForAnotherTenantOrSalt) {
  Request mine = Make(1000, 1), other = Make(1000, 1), salted = Make(1000, 1);
  mine.tenant = salted.tenant = "a";
  other.tenant = "b";
  salted.cache_salt = "s";
  for (const Request& r : {mine, other, salted}) Send(r);
  s_.NextPlan();
  EXPECT_EQ(s_.stats().running, 3);
}

TEST_F(SharedPrefixTest, C8_109_NobodyWaitsForOneThatRanksBehind) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 256;
  Use(config);
  Send(Make(2000, 1));
  Step();
  Request urgent = Make(2000, 1);
  urgent.priority = 1;
  Send(urgent);
  EXPECT_EQ(StartIn(Step(), urgent.id), 256);
  Drain();
}

TEST_F(SharedPrefixTest, C8_110_WhoReusesNothingWaitsForNobody) {
  Request scored = Make(1000, 1);
  scored.prompt_logprobs = 0;
  Send(Make(1000, 1));
  Send(scored);
  EXPECT_EQ(Step().rows.size(), 2u);
  Drain();
  SchedulerConfig config = Config();
  config.prefix_cache = false;
  Use(config);
  for (int i = 0; i < 3; ++i) Send(Make(600, 1));
  EXPECT_EQ(Step().rows.size(), 3u);
  Drain();
}

TEST_F(SharedPrefixTest, C8_111_NobodyWaitsForAStateThatWillNotBeLeft) {
  Send(Fork(640, 3000));
  Step();
  const RequestId leader = Send(Make(3000, 1, 1000));
  const Plan first = s_.NextPlan();
  EXPECT_EQ(EndIn(first, leader), 2048);
  Request shorter = Make(1000, 1, 1000);  // the row in flight leaves no state at 960
  Send(shorter);
  EXPECT_EQ(StartIn(s_.NextPlan(), shorter.id), 0);
}

// One step ahead: the blocks that a row in flight writes are there once it has come back.
TEST_F(SharedPrefixTest, C8_112_AFollowerWaitsForRowsInFlight) {
  Send(Make(1000, 5));
  const Plan first = s_.NextPlan();
  EXPECT_EQ(EndIn(first, RequestId(0)), 1000);
  const RequestId follower = Send(Make(1000, 5));
  const Plan second = s_.NextPlan();
  EXPECT_EQ(StartIn(second, follower), -1);
  CompleteRow(first);
  const Plan third = s_.NextPlan();
  EXPECT_EQ(StartIn(third, follower), 960);
  CompleteRow(second);
  CompleteRow(third);
  Drain();
}

TEST_F(SharedPrefixTest, WithoutRecurrentStateAnyBlockInFlightIsWorthWaitingFor) {
  SchedulerConfig config = Config();
  config.cache.groups = {{"full", GroupKind::kFull, 64, 1}};
  Use(config);
  Send(Make(2000, 1));
  const Plan first = s_.NextPlan();
  const RequestId follower = Send(Fork(1000, 4000));
  EXPECT_TRUE(s_.NextPlan().empty());
  CompleteRow(first);
  EXPECT_EQ(StartIn(Step(), follower), 960);
  Drain();
}

// A leader whose rest is long would wait for every shorter prompt; not so the part that is awaited.
TEST_F(SharedPrefixTest, C8_113_WhatIsAwaitedGoesAsIfItWereAPromptOfThatLength) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 256 + 128;
  Use(config);
  Send(Make(3000, 1, 2000));  // ranks first
  const RequestId leader = Send(Make(3500, 1));
  const RequestId follower = Send(Fork(256, 4500));
  for (TokenId i = 0; i < 20; ++i) Send(Make(400, 1, 1000 + 50 * i));
  int steps = 0;
  while (StartIn(Step(), follower) < 0) ASSERT_LT(++steps, 4);
  EXPECT_GT(s_.stats().waiting + s_.stats().running, 15);
  (void)leader;
}

// Conversations that were preempted come back with what they said, and share that too.
TEST_F(SharedPrefixTest, C8_106_WhenTheLeaderLosesItsBlocksTheNextOneLeads) {
  SchedulerConfig config = Config();
  config.cache.pages = 1 + 45;
  config.step_tokens_max = 256;
  Use(config);
  Request urgent = Make(600, 600, 3000);
  urgent.priority = 1;
  Send(Make(1500, 1));
  Send(Make(1500, 1));
  Step();
  Send(urgent);
  Drain();
  for (const auto& [id, output] : outputs_) EXPECT_EQ(output.error, "") << id.value;
  EXPECT_EQ(outputs_[RequestId(1)].output_tokens, 1);
}

// With ranks the followers go where the prefix is being computed.
TEST_F(SharedPrefixTest, C8_114_FollowersGoToTheLeadersRank) {
  SchedulerConfig config = Config();
  config.dp_ranks = 2;
  Use(config);
  for (int i = 0; i < 4; ++i) Send(Make(1000, 3));
  Step();
  EXPECT_EQ(s_.stats().running, 1);
  Drain();
  for (int64_t id = 1; id < 4; ++id) EXPECT_EQ(outputs_[RequestId(id)].cached_tokens, 960);
}

}  // namespace
}  // namespace braid
