// What becomes of requests that share, wait, make room and leave, as plans show it. Numbers in
// names (C2.n to C7.n) are those of the behavioural scenarios, in blocks of 64 tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class ScenarioTest : public SchedulerFixture {
 protected:
  static SchedulerConfig Config(int32_t pages = 200) { return BlockConfig(pages); }
  // (start, count) of each row of one request until it ends.
  std::vector<std::pair<int32_t, int32_t>> RowsOf(const Request& r) {
    Send(r);
    std::vector<std::pair<int32_t, int32_t>> rows;
    for (Plan plan = Step(); !plan.empty(); plan = Step()) {
      for (const Row& row : plan.rows) {
        if (row.request == r.id) rows.emplace_back(row.start, row.token_count);
      }
    }
    return rows;
  }
};

using Rows = std::vector<std::pair<int32_t, int32_t>>;

TEST_F(ScenarioTest, C2_15_TheBlockComputedAgainIsStoredForTheNext) {
  EXPECT_EQ(Reused(Make(256, 1)), 0);
  EXPECT_EQ(Reused(Make(256, 1)), 192);
  EXPECT_EQ(Reused(Make(256, 1)), 192);
  EXPECT_EQ(Reused(Make(300, 1)), 256);
}

TEST_F(ScenarioTest, C2_17_C2_18_MoreGroupsOfAKindInAnyOrderFindTheSame) {
  const std::vector<GroupGeometry> orders[] = {
      {{"full", GroupKind::kFull, 64, 1}, {"state", GroupKind::kState, 64, 1}},
      {{"full", GroupKind::kFull, 64, 1},
       {"draft", GroupKind::kFull, 32, 2},
       {"state", GroupKind::kState, 64, 1},
       {"draft state", GroupKind::kState, 32, 2}},
      {{"draft state", GroupKind::kState, 32, 2},
       {"state", GroupKind::kState, 64, 1},
       {"draft", GroupKind::kFull, 32, 2},
       {"full", GroupKind::kFull, 64, 1}}};
  for (const auto& groups : orders) {
    SchedulerConfig config = Config();
    config.cache.groups = groups;
    Use(config);
    EXPECT_EQ(Reused(Make(300, 50)), 0);
    EXPECT_EQ(Reused(Make(300, 1)), 256);
    EXPECT_EQ(Reused(Make(200, 1)), 0);  // keys, and no state
    EXPECT_EQ(Reused(Make(280, 1)), 256);
  }
}

TEST_F(ScenarioTest, C2_20_AStateThatItsSequenceHasLeftBehindIsStillAHit) {
  Send(Make(128, 200));
  while (s_.stats().decode_tokens < 150) ASSERT_FALSE(Step().empty());
  Request other = Make(128, 1);
  other.prompt.resize(140, 4000);
  Send(other);
  EXPECT_EQ(Step().rows.back().start, 128);
  Drain();
}

TEST_F(ScenarioTest, C2_25_C7_96_C7_97_AChunkGoesOnWhereTheLastOneEndedInTheSameSlot) {
  Send(Make(3000, 1));
  Send(Make(3000, 1));
  std::map<RequestId, int32_t> ends;
  std::map<RequestId, SlotId> slots;
  for (Plan plan = Step(); !plan.empty(); plan = Step()) {
    for (const Row& row : plan.rows) {
      EXPECT_GT(row.token_count, 0);
      const auto [end, first] = ends.try_emplace(row.request, row.start);
      EXPECT_EQ(row.start, end->second);
      end->second = row.start + row.token_count;
      EXPECT_EQ(slots.try_emplace(row.request, row.slot).first->second, row.slot);
    }
  }
  EXPECT_EQ(ends[RequestId(0)], 3000);
}

TEST_F(ScenarioTest, C3_30_C3_36_APromptLeavesAStateAtItsLastBoundary) {
  EXPECT_EQ(RowsOf(Make(160, 1)), (Rows{{0, 160}}));
  EXPECT_EQ(Reused(Make(160, 1)), 128);
  // One that ends at a boundary is cut one block before it, so that it can be resumed itself.
  EXPECT_EQ(RowsOf(Make(192, 1, 1000)), (Rows{{0, 128}, {128, 64}}));
  SchedulerConfig config = Config();
  config.prefix_cache = false;
  Use(config);
  EXPECT_EQ(RowsOf(Make(192, 1)), (Rows{{0, 192}}));
}

TEST_F(ScenarioTest, C3_31_WhatIsLeftAfterAHitIsOneRow) {
  Reused(Make(256, 1));
  Request longer = Make(256, 1);
  longer.prompt.resize(600, 3);
  EXPECT_EQ(RowsOf(longer), (Rows{{256, 344}}));
}

TEST_F(ScenarioTest, C3_32_ABudgetBelowABlockIsRefused) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 63;
  const auto refused = Scheduler::Create(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "step_tokens_max is 63, must be at least 64");
  config.step_tokens_max = 64;
  EXPECT_TRUE(Scheduler::Create(config).ok());
}

TEST_F(ScenarioTest, C3_34_ABranchBeyondTheBudgetIsHonouredByALaterChunk) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 128;
  Use(config);
  for (const TokenId tail : {1000, 2000}) {
    Request r = Make(320, 1);
    for (TokenId i = 0; i < 100; ++i) r.prompt.push_back(tail + i);
    const Rows rows = RowsOf(r);
    // The first is cut by the budget only; the second also at 320, where the two part.
    if (tail == 2000) {
      EXPECT_EQ(rows, (Rows{{256, 64}, {320, 100}}));
    }
  }
  Request third = Make(320, 1);
  third.prompt.resize(400, 3000);
  EXPECT_EQ(Reused(third), 320);
}

TEST_F(ScenarioTest, C3_35_C3_38_C4_60_AChunkThatEndsInsideABlockStoresNoStateAndGoesOnFromIts) {
  SchedulerConfig config = Config();
  config.chunk_tokens_max = 40;
  Use(config);
  Send(Make(200, 1));
  CompleteRow(s_.NextPlan());  // tokens 0 to 39
  EXPECT_EQ(s_.stats().blocks_cached, (std::vector<int64_t>{0, 0}));
  const Plan second = Step();
  EXPECT_EQ(second.rows[0].start, 40);
  EXPECT_THAT(second.tables, IsEmpty());  // up to the boundary, in the blocks it has
  Drain();
  EXPECT_EQ(Reused(Make(200, 1)), 192);
}

TEST_F(ScenarioTest, C3_39_ABlockThatDecodingFillsIsFoundOnceItsStepHasLanded) {
  const Request first = Make(100, 60);
  Send(first);
  Request next = Make(100, 1);
  next.prompt.insert(next.prompt.end(), 40, 7);  // what the first will have generated, and more
  Plan plan = s_.NextPlan();
  while (plan.rows[0].start + plan.rows[0].token_count < 128) {
    CompleteRow(plan);
    plan = s_.NextPlan();
  }
  Send(next);
  const Plan early = s_.NextPlan();  // while token 127 is on its way
  ASSERT_EQ(early.rows.size(), 2u);
  EXPECT_EQ(early.rows[1].start, 64);  // what the prompt left
  CompleteRow(plan);
  next.id = RequestId(next_id_++);
  Send(next);
  const Plan later = s_.NextPlan();
  EXPECT_EQ(later.rows.back().request, next.id);
  EXPECT_EQ(later.rows.back().start, 128);
  CompleteRow(early);
  CompleteRow(later);
  Drain();
}

TEST_F(ScenarioTest, C3_43_WhatAnAbortedChunkWroteIsNotFound) {
  const RequestId id = Send(Make(256, 1));
  const Plan plan = s_.NextPlan();
  s_.Apply(Abort{id});
  CompleteRow(plan);
  EXPECT_EQ(s_.stats().pages_cached, 0);
  EXPECT_EQ(Reused(Make(256, 1)), 0);
}

TEST_F(ScenarioTest, C3_44_OnlyWholeBlocksOutliveARequest) {
  Reused(Make(300, 1));
  EXPECT_EQ(s_.stats().blocks_cached, (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(s_.stats().pages_used, 0);
}

TEST_F(ScenarioTest, C3_45_C5_82_C6_90_WithNoRoomForSnapshotsARequestStillRunsToItsEnd) {
  Use(Config(6 + 3));  // exactly what 384 tokens need while they are computed
  const Request r = Make(200, 185);
  EXPECT_EQ(Reused(r), 0);
  EXPECT_EQ(outputs_[r.id].tokens.size(), 185u);
  EXPECT_EQ(outputs_[r.id].preemptions, 0);
}

TEST_F(ScenarioTest, C4_55_NoPlanNamesTheSink) {
  Send(Make(700, 80));
  Send(Make(90, 80, 900));
  for (Plan plan = Step(); !plan.empty(); plan = Step()) {
    for (const TableUpdate& t : plan.tables) EXPECT_GT(t.block.value, 0);
  }
}

TEST_F(ScenarioTest, C4_57_ASnapshotServesTwoAtATimeAndStaysForAThird) {
  Reused(Make(256, 1));
  for (const TokenId tail : {1000, 2000}) {
    Request r = Make(256, 100);
    r.prompt.resize(300, tail);
    Send(r);
  }
  const Plan plan = Step();
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].start, 256);
  EXPECT_EQ(plan.rows[1].start, 256);
  Drain();
  Request third = Make(256, 1);
  third.prompt.resize(300, 3000);
  EXPECT_EQ(Reused(third), 256);
}

TEST_F(ScenarioTest, C4_59_C5_63_AnAdmissionThatFailsKeepsNothingOfWhatItFound) {
  Use(Config(14));
  EXPECT_EQ(Reused(Make(256, 1)), 0);
  const Request big = Make(500, 1, 1000);  // eight blocks and three states
  Send(big);
  Step();
  const SchedulerStats before = s_.stats();
  Request warm = Make(256, 1);
  warm.prompt.resize(400, 9);
  Send(warm);  // finds four blocks and a state, and needs three blocks and two states more
  Step();
  Drain();
  EXPECT_EQ(before.waiting, 0);
  EXPECT_EQ(outputs_[warm.id].tokens.size(), 1u);
}

TEST_F(ScenarioTest, C4_62_OnlyTheRowThatCrossesABoundaryStoresAState) {
  SchedulerConfig config = Config();
  Use(config);
  Send(Make(64 + 60, 20));
  Send(Make(30, 20, 1000));
  Step();
  const int64_t states = s_.stats().blocks_used[1];
  for (int i = 0; i < 6; ++i) Step();                // the first passes 128
  EXPECT_EQ(s_.stats().blocks_used[1], states + 0);  // it lets go of the one before
  EXPECT_EQ(s_.stats().blocks_cached[1], 1);
  Drain();
}

TEST_F(ScenarioTest, C5_68_ASequencesOwnOldStatesAreUsedBeforeAnythingIsEvicted) {
  SchedulerConfig config = Config(5 + 2 + 12 + 3);
  Use(config);
  Reused(Make(300, 1));  // four blocks and a state stay
  config.prefix_cache = true;
  Send(Make(64, 600, 1000));
  Drain();
  EXPECT_EQ(s_.stats().evictions_full, 0);
}

TEST_F(ScenarioTest, C5_76_NobodyTakesTheRoomThatWasReservedForAnAnswer) {
  Use(Config(7));
  Send(Make(100, 20));  // a block, one with room for the answer, and two states
  Step();
  const RequestId second = Send(Make(100, 20, 1000));
  Step();
  EXPECT_EQ(s_.stats().waiting, 1);
  s_.Apply(Abort{second});
  s_.TakeOutputs();
  EXPECT_EQ(s_.stats().waiting, 0);
  Drain();
  EXPECT_EQ(s_.stats().preemptions, 0);
}

TEST_F(ScenarioTest, C5_77_AsManyAreAdmittedAsFitAndTheRestWait) {
  SchedulerConfig config = Config(24);
  config.running_max = 16;
  Use(config);
  for (TokenId i = 0; i < 16; ++i) Send(Make(30, 10, i * 100));  // a block and a state each
  EXPECT_EQ(Step().rows.size(), 12u);
  EXPECT_EQ(s_.stats().waiting, 4);
  Drain();
}

TEST_F(ScenarioTest, C5_78_AHitNeedsNoMoreRoomThanAColdStart) {
  for (const bool warm : {false, true}) {
    Use(Config(7 + 3));
    if (warm) Reused(Make(256, 1));
    Request r = Make(256, 100);
    r.prompt.resize(340, 9);
    Send(r);
    EXPECT_EQ(Step().rows.at(0).start, warm ? 256 : 0);
    Drain();
    EXPECT_EQ(outputs_[r.id].tokens.size(), 100u);
  }
}

TEST_F(ScenarioTest, C6_83_TheLastRankedGivesWayAndThenTheNext) {
  Use(Config(3 * 4 + 2));
  std::vector<RequestId> ids;
  for (TokenId i = 0; i < 3; ++i) ids.push_back(Send(Make(60, 300, i * 1000)));
  const auto run_until = [&](int64_t preemptions) {
    Plan plan = Step();
    while (s_.stats().preemptions < preemptions && !plan.empty()) plan = Step();
    return Ids(plan);
  };
  EXPECT_THAT(run_until(1), ElementsAre(ids[0].value, ids[1].value));
  EXPECT_THAT(run_until(2), ElementsAre(ids[0].value));
  Drain();
  for (const RequestId id : ids) EXPECT_EQ(outputs_[id].tokens.size(), 300u);
}

TEST_F(ScenarioTest, C6_84_NobodyLosesBlocksWhileAVictimsRowsAreInFlight) {
  Use(Config(9));
  Send(Make(60, 200));
  Send(Make(60, 200, 1000));
  Plan ahead = s_.NextPlan();
  int64_t before = 0;
  while (!s_.idle()) {
    const Plan next = s_.NextPlan();
    const int64_t now = s_.stats().preemptions;
    EXPECT_LE(now, before + 1);
    before = now;
    if (!ahead.empty()) CompleteRow(ahead);
    ahead = next;
  }
  EXPECT_GT(before, 0);
}

TEST_F(ScenarioTest, C6_86_TheRoomAVictimLeftIsNotForNewcomers) {
  Use(Config(9));
  const RequestId first = Send(Make(60, 250));
  Send(Make(60, 250, 1000));
  while (s_.stats().preemptions == 0) ASSERT_FALSE(Step().empty());
  const RequestId late = Send(Make(10, 1, 2000));
  while (!outputs_[first].finish) EXPECT_THAT(Ids(Step()), Not(::testing::Contains(late.value)));
  Drain();
}

TEST_F(ScenarioTest, C6_87_C6_89_AVictimResumesFromItsSnapshotOrComputesAgain) {
  for (const bool flush : {false, true}) {
    Use(Config(14));
    const RequestId first = Send(Make(60, 400));
    const RequestId victim = Send(Make(200, 200, 1000));
    while (s_.stats().preemptions == 0) ASSERT_FALSE(Step().empty());
    s_.Apply(Abort{first});  // so that nobody needs the room of what the victim published
    if (flush) s_.Apply(FlushCache{});
    int32_t start = -1;
    for (Plan plan = Step(); !plan.empty(); plan = Step()) {
      for (const Admission& a : plan.admissions) {
        for (const Row& row : plan.rows) {
          if (row.request == victim && row.slot == a.slot) start = row.start;
        }
      }
    }
    EXPECT_EQ(start == 0, flush) << start;
    EXPECT_EQ(start % 64, 0);
    EXPECT_EQ(outputs_[victim].tokens.size(), 200u);
  }
}

TEST_F(ScenarioTest, C6_88_AnAbortAfterAPreemptionFreesNothingTwice) {
  Use(Config(9));
  Send(Make(60, 250));
  const RequestId victim = Send(Make(60, 250, 1000));
  Plan ahead = s_.NextPlan();
  while (s_.stats().preemptions == 0) {
    ASSERT_FALSE(ahead.empty());
    const Plan next = s_.NextPlan();
    CompleteRow(ahead);
    ahead = next;
  }
  s_.Apply(Abort{victim});  // its row may still be in flight
  CompleteRow(ahead);
  Drain();
  s_.Apply(FlushCache{});
  EXPECT_EQ(s_.stats().pages_cached, 0);
}

TEST_F(ScenarioTest, LostArenasEndWhatRunsAndForgetWhatIsCached) {
  SchedulerConfig config = Config();
  config.running_max = 1;
  Use(config);
  const RequestId done = Send(Make(200, 1));
  Drain();
  EXPECT_EQ(outputs_[done].finish, FinishReason::kLength);
  EXPECT_GT(s_.stats().pages_cached, 0);
  const RequestId runs = Send(Make(60, 250));
  Step();
  const Request big = Make(600, 30, 2000);
  Send(big);
  Step();
  ASSERT_EQ(s_.stats().running, 1);
  ASSERT_EQ(s_.stats().waiting, 1);
  s_.Apply(ArenasLost{"the device is lost"});
  Take();
  EXPECT_EQ(outputs_[runs].finish, FinishReason::kError);
  EXPECT_EQ(outputs_[runs].error, "the device is lost");
  EXPECT_FALSE(outputs_[big.id].finish);
  EXPECT_EQ(s_.stats().pages_cached, 0);
  EXPECT_EQ(s_.stats().pages_used, 0);
  EXPECT_TRUE(s_.Audit().ok());
  Drain();
  EXPECT_EQ(outputs_[big.id].finish, FinishReason::kLength);
}

TEST_F(ScenarioTest, C7_92_NobodyIsAdmittedBeforeASequenceThatWaitsForRoom) {
  Use(Config(12));
  Send(Make(300, 300));
  Step();
  const Request big = Make(400, 1, 1000);
  Send(big);
  const RequestId small = Send(Make(10, 1, 2000));
  while (!outputs_[big.id].finish) {
    const Plan plan = Step();
    ASSERT_FALSE(plan.empty());
    if (outputs_[small].finish) break;
  }
  EXPECT_EQ(outputs_[big.id].finish, FinishReason::kLength);
  Drain();
}

}  // namespace
}  // namespace braid
