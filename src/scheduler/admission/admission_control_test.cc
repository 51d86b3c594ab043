// Who is admitted, where, with which blocks, and what their tenants are charged.
#include "scheduler/admission/admission_control.h"

#include <gmock/gmock.h>

#include "scheduler/testing/parts_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AdmissionControlTest : public PartsFixture {
 protected:
  AdmissionControl& admission() { return parts_->admission; }
  std::vector<int64_t> Admit() {
    std::vector<int64_t> ids;
    for (const Sequence* s : admission().Admit()) ids.push_back(s->id.value);
    return ids;
  }
  static SchedulerConfig Ranks(int32_t ranks, Placement placement) {
    SchedulerConfig config = Config();
    config.dp_ranks = ranks;
    config.placement = placement;
    return config;
  }
};

TEST_F(AdmissionControlTest, AnAdmittedSequenceHasTheLowestSlotAndAllItsBlocks) {
  const Sequence& s = Send(Make(200, 500));
  EXPECT_THAT(Admit(), ElementsAre(0));
  EXPECT_FALSE(s.waiting);
  EXPECT_TRUE(s.Is<Prefilling>());
  EXPECT_EQ(s.dp_rank, DpRankId(0));
  EXPECT_EQ(s.slot, SlotId(0));
  EXPECT_EQ(s.prefill_end, 200);
  EXPECT_EQ(s.planned, 0);
  // 200 tokens and a block of output, and three states.
  EXPECT_EQ(rank().cache.pool().pages_used(), 5 + 3);
  EXPECT_THAT(rank().running, ElementsAre(&s));
  EXPECT_THAT(Admit(), IsEmpty());
}

TEST_F(AdmissionControlTest, AShortAnswerReservesNoMoreThanItCanStore) {
  Send(Make(60, 3));
  Admit();
  EXPECT_EQ(rank().cache.pool().pages_used(), 1 + 1);
}

TEST_F(AdmissionControlTest, NobodyIsAdmittedWithoutASlot) {
  for (int i = 0; i < 6; ++i) Send(Make(10, 8, 100 * i + 10));
  EXPECT_THAT(Admit(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Admit(), IsEmpty());
  EXPECT_EQ(admission().queue().size(), 2);
}

TEST_F(AdmissionControlTest, WithTooFewBlocksNothingIsTakenAndNobodyPasses) {
  SchedulerConfig config = Config();
  config.cache.pages = 1 + 12;
  Use(config);
  Send(Make(200, 8));
  Send(Make(400, 8, 1000));
  Send(Make(10, 8, 2000));
  EXPECT_THAT(Admit(), ElementsAre(0));
  const int32_t used = rank().cache.pool().pages_used();
  EXPECT_THAT(Admit(), IsEmpty());
  EXPECT_EQ(rank().cache.pool().pages_used(), used);
  EXPECT_EQ(admission().queue().size(), 2);
}

TEST_F(AdmissionControlTest, ARefusedRequestIsTriedAgainWhenTheCacheChanged) {
  SchedulerConfig config = Config();
  config.cache.pages = 1 + 12;
  Use(config);
  Sequence& first = Send(Make(200, 8));
  Send(Make(400, 8, 1000));
  EXPECT_THAT(Admit(), ElementsAre(0));
  EXPECT_THAT(Admit(), IsEmpty());
  parts_->life_cycle.Abort(first.id, FinishReason::kAbort);
  EXPECT_THAT(Admit(), ElementsAre(1));
}

TEST_F(AdmissionControlTest, ARequestForOneRankWaitsThereAndOthersPass) {
  Use(Ranks(2, Placement::kLeastLoaded));
  for (int i = 0; i < 6; ++i) {
    Request r = Make(10, 8, 100 * i + 10);
    r.dp_rank = 1;
    Send(r);
  }
  Send(Make(10, 8, 1000));
  EXPECT_THAT(Admit(), ElementsAre(0, 1, 2, 3, 6));
  EXPECT_EQ(rank(1).running.size(), 4u);
  EXPECT_EQ(rank(0).running.size(), 1u);
  EXPECT_EQ(rank(1).running[0]->slot, SlotId(4));  // slots count through the ranks
}

TEST_F(AdmissionControlTest, RoundRobinGoesOnFromTheLastRank) {
  Use(Ranks(3, Placement::kRoundRobin));
  std::vector<int32_t> ranks;
  for (int i = 0; i < 5; ++i) {
    Sequence& s = Send(Make(10, 8, 100 * i + 10));
    Admit();
    ranks.push_back(s.dp_rank.value);
  }
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 0, 1));
}

TEST_F(AdmissionControlTest, TheLeastLoadedRankIsTriedFirst) {
  Use(Ranks(3, Placement::kLeastLoaded));
  for (int i = 0; i < 3; ++i) {
    Request r = Make(10, 8, 100 * i + 10);
    r.dp_rank = std::min(i, 1);
    Send(r);
  }
  Sequence& s = Send(Make(10, 8, 1000));
  Admit();
  EXPECT_EQ(s.dp_rank, DpRankId(2));
}

TEST_F(AdmissionControlTest, APrefixAttractsItsRequestUntilTheRankIsFuller) {
  Use(Ranks(2, Placement::kPrefixAffine));
  Request r = Make(300, 1);
  r.dp_rank = 1;
  Send(r);
  Step();
  parts_->life_cycle.TakeOutputs();
  Sequence& near = Send(Make(300, 100));
  Admit();
  EXPECT_EQ(near.dp_rank, DpRankId(1));
  EXPECT_EQ(near.planned, 256);
  EXPECT_EQ(near.reuse.tokens, 256);
  // A quarter of four slots more than the least loaded is one; another would make it two.
  Sequence& second = Send(Make(300, 100));
  Admit();
  EXPECT_EQ(second.dp_rank, DpRankId(1));
  Sequence& third = Send(Make(300, 100));
  Admit();
  EXPECT_EQ(third.dp_rank, DpRankId(0));
}

TEST_F(AdmissionControlTest, RoomThatAPreemptionMadeIsNotForNewcomers) {
  Send(Make(10));
  rank().preempted = true;
  EXPECT_THAT(Admit(), IsEmpty());
  rank().preempted = false;
  rank().draining = 1;
  EXPECT_THAT(Admit(), IsEmpty());
  rank().draining = 0;
  rank().starving = RequestId(99);
  EXPECT_THAT(Admit(), IsEmpty());
  rank().starving = RequestId();
  EXPECT_THAT(Admit(), ElementsAre(0));
}

TEST_F(AdmissionControlTest, ATenantIsChargedForWhatIsComputedAndOnce) {
  Request big = Make(300, 50), small = Make(20, 50, 1000), next = Make(20, 50, 2000);
  big.tenant = "a";
  small.tenant = "b";
  next.tenant = "a";
  SchedulerConfig config = Config();
  config.running_max = 1;
  Use(config);
  Sequence& s = Send(big);
  Send(next);
  Send(small);
  EXPECT_THAT(Admit(), ElementsAre(big.id.value));
  EXPECT_EQ(s.computed, -300);
  parts_->life_cycle.Abort(big.id, FinishReason::kAbort);
  EXPECT_EQ(s.computed, -300);
  EXPECT_THAT(Admit(), ElementsAre(small.id.value));  // although it came last
}

// Nothing of it was computed before it lost its blocks.
TEST_F(AdmissionControlTest, WhatIsAdmittedAgainIsChargedOnce) {
  SchedulerConfig config = Config();
  config.running_max = 1;
  Use(config);
  std::vector<Request> requests;
  for (const char* tenant : {"b", "b", "a", "a"}) {
    const auto i = static_cast<int32_t>(requests.size());
    requests.push_back(Make(i == 0 ? 400 : i == 2 ? 300 : 20, 50, 1000 * i));
    requests.back().tenant = tenant;
  }
  for (const Request& request : requests) Send(request);
  const auto id = [&](size_t i) { return requests[i].id.value; };
  EXPECT_THAT(Admit(), ElementsAre(id(0)));
  parts_->life_cycle.Abort(requests[0].id, FinishReason::kAbort);
  ASSERT_THAT(Admit(), ElementsAre(id(2)));
  parts_->life_cycle.Preempt(*rank().running[0]);
  rank().preempted = false;
  ASSERT_THAT(Admit(), ElementsAre(id(2)));
  parts_->life_cycle.Abort(requests[2].id, FinishReason::kAbort);
  EXPECT_THAT(Admit(), ElementsAre(id(3))) << "its tenant was charged 300 tokens, the other 400";
}

TEST_F(AdmissionControlTest, ReuseIsCountedAtTheFirstAdmissionOnly) {
  Sequence& s = Send(Make(300, 100));
  Admit();
  EXPECT_EQ(admission().counts().prompt_tokens, 300);
  EXPECT_EQ(admission().counts().reused_tokens, 0);
  const auto stops = [&](ReuseStop stop) {
    return admission().counts().reuse_stops[static_cast<size_t>(stop)];
  };
  const auto lost = [&](ReuseStop stop) {
    return admission().counts().lost_tokens[static_cast<size_t>(stop)];
  };
  EXPECT_EQ(stops(ReuseStop::kNeverSeen), 1);
  EXPECT_EQ(lost(ReuseStop::kNeverSeen), 300);
  parts_->life_cycle.Preempt(s);
  rank().preempted = false;
  EXPECT_THAT(Admit(), ElementsAre(s.id.value));
  EXPECT_EQ(admission().counts().prompt_tokens, 300);
  EXPECT_EQ(stops(ReuseStop::kNeverSeen), 1);
}

TEST_F(AdmissionControlTest, WhatIsBeyondASnapshotWasNeverSeen) {
  Request first = Make(300, 1);
  Send(first);
  Step();
  Request second = Make(300, 1);
  std::fill(second.prompt.begin() + 200, second.prompt.end(), 1);
  Sequence& s = Send(second);
  Admit();
  EXPECT_EQ(s.reuse.known, 192);
  EXPECT_EQ(s.reuse.tokens, 0);
  EXPECT_EQ(s.reuse.stop, ReuseStop::kNoSnapshot);
  EXPECT_EQ(s.branch_at, 192);
  const AdmissionControl::Counts& counts = admission().counts();
  EXPECT_EQ(counts.lost_tokens[static_cast<size_t>(ReuseStop::kNoSnapshot)], 192);
  EXPECT_EQ(counts.lost_tokens[static_cast<size_t>(ReuseStop::kNeverSeen)], 300 + 108);
}

TEST_F(AdmissionControlTest, AnOftenPreemptedSequenceReservesAllItCanNeedAndReusesNothing) {
  Sequence& s = Send(Make(300, 500));
  Step();
  EXPECT_TRUE(s.reuses);
  for (int i = 0; i < parts_->config.preemptions_max; ++i) {
    parts_->life_cycle.Preempt(s);
    rank().preempted = false;
    ASSERT_THAT(Admit(), ElementsAre(s.id.value));
  }
  EXPECT_FALSE(s.reuses);
  EXPECT_EQ(s.planned, 0);
  EXPECT_EQ(rank().cache.pool().pages_used(), 13 + 3);  // 799 tokens
}

TEST_F(AdmissionControlTest, AFollowerWaitsForItsLeaderWithAClaimOnASlot) {
  SchedulerConfig config = Config();
  config.running_max = 2;
  config.chunk_tokens_max = 64;
  Use(config);
  Sequence& leader = Send(Make(300, 50));
  Sequence& follower = Send(Make(300, 50));
  Send(Make(10, 8, 2000));
  EXPECT_THAT(Admit(), ElementsAre(leader.id.value));
  EXPECT_EQ(follower.leader, &leader);
  EXPECT_EQ(follower.awaited, 256);
  EXPECT_EQ(admission().claims(DpRankId(0)), 1);
  EXPECT_TRUE(follower.waiting);
  admission().WakeFollowers(leader, 192);
  EXPECT_EQ(follower.leader, &leader);
  admission().WakeFollowers(leader, 256);
  EXPECT_EQ(follower.leader, nullptr);
  EXPECT_EQ(admission().claims(DpRankId(0)), 0);
}

TEST_F(AdmissionControlTest, AFollowerThatEndsGivesItsClaimBack) {
  Sequence& leader = Send(Make(300, 50));
  Sequence& follower = Send(Make(300, 50));
  Admit();
  EXPECT_EQ(admission().claims(DpRankId(0)), 1);
  parts_->life_cycle.Abort(follower.id, FinishReason::kAbort);
  EXPECT_EQ(admission().claims(DpRankId(0)), 0);
  EXPECT_THAT(leader.followers, IsEmpty());
  EXPECT_TRUE(admission().queue().empty());
}

TEST_F(AdmissionControlTest, RunningSequencesAreOrderedByPriorityThenArrival) {
  Request low = Make(10), high = Make(10, 8, 1000), later = Make(10, 8, 2000);
  high.priority = 2;
  low.priority = 1;
  later.priority = 2;
  Send(low);
  Admit();
  Send(high);
  Send(later);
  EXPECT_THAT(Admit(), ElementsAre(high.id.value, later.id.value));
  std::vector<int64_t> running;
  for (const Sequence* s : rank().running) running.push_back(s->id.value);
  EXPECT_THAT(running, ElementsAre(high.id.value, later.id.value, low.id.value));
}

}  // namespace
}  // namespace braid
