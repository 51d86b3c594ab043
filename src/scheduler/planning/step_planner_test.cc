// What a step contains, and who is preempted for it.
#include "scheduler/planning/step_planner.h"

#include <gmock/gmock.h>

#include "scheduler/testing/parts_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StepPlannerTest : public PartsFixture {
 protected:
  StepPlanner& planner() { return parts_->planner; }
  static std::vector<std::pair<int64_t, int32_t>> RowsOf(const Plan& plan) {
    std::vector<std::pair<int64_t, int32_t>> rows;
    for (const Row& row : plan.rows) rows.emplace_back(row.request.value, row.token_count);
    return rows;
  }
  using Rows = std::vector<std::pair<int64_t, int32_t>>;
};

TEST_F(StepPlannerTest, WithoutRequestsThePlanIsEmptyAndNoStepIsCounted) {
  EXPECT_TRUE(planner().Next().empty());
  EXPECT_FALSE(planner().in_flight());
  EXPECT_EQ(planner().counts().steps, 0);
}

TEST_F(StepPlannerTest, AFirstRowComesWithItsAdmissionAndItsTables) {
  const Request r = Make(100, 8);
  Send(r);
  const Plan plan = planner().Next();
  EXPECT_EQ(plan.step, StepId(0));
  ASSERT_EQ(plan.admissions.size(), 1u);
  EXPECT_EQ(plan.admissions[0].request->id, r.id);
  EXPECT_THAT(plan.admissions[0].output, IsEmpty());
  EXPECT_EQ(plan.tables.size(), 2u + 2u);  // blocks; the state at 64 and the rows behind it
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_EQ(plan.rows[0].start, 0);
  EXPECT_EQ(plan.rows[0].token_begin, 0);
  EXPECT_TRUE(plan.rows[0].sample);
  EXPECT_FALSE(plan.rows[0].prompt_logprobs);
  EXPECT_EQ(plan.tokens, r.prompt);
  EXPECT_EQ(plan.dp_rank_rows, std::vector<int32_t>{1});
  EXPECT_TRUE(planner().in_flight());
}

// The draft head is right, so tokens are looked up only now and then, to see whether that pays.
TEST_F(StepPlannerTest, ADrafterThatIsWorseIsAskedSeldom) {
  SchedulerConfig config = Config();
  config.draft_tokens_max = 3;
  config.draft_adapt = config.draft_head = true;
  Use(config);
  Send(Make(10, 1000));
  int looked_up = 0, by_head = 0;
  for (int step = 0; step < 200; ++step) {
    const Plan plan = planner().Next();
    ASSERT_EQ(plan.rows.size(), 1u);
    const auto& propose = plan.rows[0].propose;
    if (step >= 40) {
      looked_up += propose[static_cast<size_t>(DraftSource::kLookup)] > 0;
      by_head += propose[static_cast<size_t>(DraftSource::kHead)] > 0;
    }
    StepDone done = DoneOf(plan);
    done.rows[0].accepted = plan.rows[0].drafts;
    done.rows[0].drafts = {1, 2, 3};
    done.rows[0].drafts_of = DraftSource::kHead;
    Complete(done);
  }
  EXPECT_EQ(looked_up, 160 / 16);
  EXPECT_EQ(by_head, 160);
}

TEST_F(StepPlannerTest, DecodeRowsComeBeforePrefillsWithinTheBudget) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 65;
  Use(config);
  Sequence& first = Send(Make(30, 8));
  Step();
  Sequence& second = Send(Make(200, 8, 1000));
  const Plan plan = planner().Next();
  EXPECT_EQ(RowsOf(plan), (Rows{{first.id.value, 1}, {second.id.value, 64}}));
  EXPECT_EQ(planner().counts().decode_rows, 1);
  EXPECT_EQ(planner().counts().prefill_tokens, 30 + 64);
}

TEST_F(StepPlannerTest, TheFirstPrefillGetsHalfAndTheShortestRemainderComesNext) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 512;
  Use(config);
  Sequence& first = Send(Make(1000, 8));
  Sequence& longer = Send(Make(400, 8, 2000));
  Sequence& shorter = Send(Make(128, 8, 3000));
  const Plan plan = planner().Next();
  EXPECT_EQ(RowsOf(plan),
            (Rows{{shorter.id.value, 64}, {longer.id.value, 192}, {first.id.value, 256}}));
}

TEST_F(StepPlannerTest, ThePrefillTakesWhatTheOthersLeave) {
  Sequence& first = Send(Make(1500, 8));
  Sequence& other = Send(Make(50, 8, 2000));
  const Plan plan = planner().Next();
  EXPECT_EQ(RowsOf(plan), (Rows{{other.id.value, 50}, {first.id.value, 960}}));
}

TEST_F(StepPlannerTest, NoMorePromptsShareAStepThanTheSettingSays) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 512;
  config.prefills_max = 2;
  Use(config);
  Sequence& first = Send(Make(1000, 8));
  Sequence& longer = Send(Make(400, 8, 2000));
  Sequence& shorter = Send(Make(128, 8, 3000));
  EXPECT_EQ(RowsOf(Step()), (Rows{{longer.id.value, 256}, {first.id.value, 256}}));
  EXPECT_EQ(rank().running.size(), 3u);  // the third has a slot and waits
  for (int i = 0; i < 20 && !longer.Is<Decoding>(); ++i) Step();
  EXPECT_EQ(shorter.planned, 0);
  Step();
  EXPECT_GT(shorter.planned, 0);
  config.prefills_max = 1;
  Use(config);
  Sequence& alone = Send(Make(1000, 8));
  Send(Make(10, 8, 2000));
  EXPECT_EQ(RowsOf(Step()), (Rows{{alone.id.value, 512}}));
}

TEST_F(StepPlannerTest, ADecodeRowRepeatsNothingAndSamplesUntilTheLength) {
  Sequence& s = Send(Make(30, 3));
  Step();
  const Plan second = planner().Next();
  EXPECT_THAT(second.tokens, ElementsAre(7));
  EXPECT_EQ(second.rows[0].start, 30);
  EXPECT_TRUE(second.rows[0].sample);
  EXPECT_THAT(second.admissions, IsEmpty());
  const Plan third = planner().Next();  // before the second has come back
  EXPECT_THAT(third.tokens, ElementsAre(kSampledInFlight));
  EXPECT_EQ(third.rows[0].start, 31);
  EXPECT_EQ(s.rows_in_flight, 2);
  Complete(DoneOf(second));
  Complete(DoneOf(third));
  EXPECT_TRUE(s.Is<Finished>());
  EXPECT_TRUE(planner().Next().empty());
}

TEST_F(StepPlannerTest, DraftsStayWithinTheBlockTheLengthTheBudgetAndTheirLimit) {
  SchedulerConfig config = Config();
  config.draft_tokens_max = 5;
  config.step_tokens_max = 64;
  config.running_max = 1;
  Use(config);
  struct Case {
    int32_t prompt, new_tokens, drafts, most;
  };
  for (const Case& c : {Case{30, 100, 3, 3},
                        {30, 100, 9, 5},
                        {60, 100, 9, 2},
                        {63, 100, 9, 5},
                        {62, 100, 9, 0},
                        {30, 5, 9, 3},
                        {30, 3, 9, 1},
                        {30, 2, 9, 0}}) {
    Sequence& s = Send(Make(c.prompt, c.new_tokens));
    Step();
    ASSERT_TRUE(s.Is<Decoding>());
    s.drafts.assign(static_cast<size_t>(c.drafts), 9);
    const Plan plan = planner().Next();
    ASSERT_EQ(plan.rows.size(), 1u);
    EXPECT_EQ(plan.rows[0].drafts, c.most) << c.prompt << " " << c.new_tokens;
    EXPECT_EQ(plan.rows[0].token_count, 1 + c.most);
    EXPECT_EQ(s.planned, c.prompt + 1 + c.most);
    Complete(DoneOf(plan));
    parts_->life_cycle.Abort(s.id, FinishReason::kAbort);
    parts_->life_cycle.TakeOutputs();
  }
}

// Before a step was measured, one token takes nine parts of time and each further one takes one:
// a draft pays from a ninth on, from an eighth where it has to bring an eighth more.
TEST_F(StepPlannerTest, DraftsHaveToBringMoreWhereStepsShouldBeShort) {
  for (const auto& [latency_us, drafts] : {std::pair(0, 1), {12'000, 0}}) {
    SchedulerConfig config = Config();
    config.draft_tokens_max = 1;
    config.draft_adapt = true;
    config.decode_latency_us = latency_us;
    Use(config);
    Sequence& s = Send(Make(30, 100));
    Step();
    s.acceptance[static_cast<size_t>(s.drafts_of)] = Acceptance(kWhole * 118 / 1000);
    s.drafts.assign(1, 9);
    const Plan plan = planner().Next();
    ASSERT_EQ(plan.rows.size(), 1u);
    EXPECT_EQ(plan.rows[0].drafts, drafts) << latency_us;
  }
}

// Each token costs as much as the last, so no draft pays. Every 64th step tries them all the same
// where they are more often right than wrong, and the head is asked for them one step before.
TEST_F(StepPlannerTest, DraftsAreTriedNowAndThenThoughTheyDoNotPay) {
  for (const auto& [chance, tried] : {std::pair(kWhole * 6 / 10, 10), {kWhole * 4 / 10, 0}}) {
    SchedulerConfig config = Config();
    config.draft_tokens_max = 3;
    config.draft_adapt = config.draft_head = true;
    Use(config);
    Sequence& s = Send(Make(64, 5000));
    int with_drafts = 0;
    bool asked = false;
    for (int step = 0; step < 64 * 16; ++step) {
      s.acceptance.fill(Acceptance(chance));
      s.drafts_of = DraftSource::kHead;
      if (s.Is<Decoding>()) s.drafts.assign(2, 9);
      const Plan plan = planner().Next();
      ASSERT_EQ(plan.rows.size(), 1u);
      const Row& row = plan.rows[0];
      if (step >= 64 * 6 && row.drafts > 0) {
        EXPECT_EQ(step % 64, 0);
        EXPECT_EQ(row.drafts, 1);
        EXPECT_TRUE(asked);
        ++with_drafts;
      }
      asked = row.propose[static_cast<size_t>(DraftSource::kHead)] > 0;
      StepDone done = DoneOf(plan);
      done.duration_us = 1000 * row.token_count;
      Complete(done);
    }
    EXPECT_EQ(with_drafts, tried) << chance;
    parts_->life_cycle.Abort(s.id, FinishReason::kAbort);
    parts_->life_cycle.TakeOutputs();
  }
}

TEST_F(StepPlannerTest, DraftsTakeAtMostHalfOfTheBudgetTogether) {
  SchedulerConfig config = Config();
  config.draft_tokens_max = 60;
  config.step_tokens_max = 66;
  config.running_max = 2;
  Use(config);
  Sequence& a = Send(Make(64, 200));
  Sequence& b = Send(Make(64, 200, 1000));
  for (int i = 0; i < 4 && !(a.Is<Decoding>() && b.Is<Decoding>()); ++i) {
    a.drafts.clear();
    Step();
  }
  a.drafts.assign(20, 9);
  b.drafts.assign(20, 9);
  const Plan plan = planner().Next();
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].drafts, 20);
  EXPECT_EQ(plan.rows[1].drafts, 12);  // (66 - 2) / 2 in all
  EXPECT_EQ(planner().counts().drafts, 32);
}

TEST_F(StepPlannerTest, ASequenceThatMayHaveDraftsIsNotPlannedAhead) {
  SchedulerConfig config = Config();
  config.draft_tokens_max = 4;
  Use(config);
  Send(Make(30, 50));
  Step();
  const Plan plan = planner().Next();
  EXPECT_EQ(plan.rows.size(), 1u);
  EXPECT_TRUE(planner().Next().empty());
  Complete(DoneOf(plan));
  EXPECT_EQ(planner().Next().rows.size(), 1u);
}

class ScarceTest : public StepPlannerTest {
 protected:
  // Two sequences decode, and together they have all the blocks there are.
  ScarceTest() {
    SchedulerConfig config = Config();
    config.cache.groups = {{"full", GroupKind::kFull, 64, 1}};
    config.cache.pages = 1 + 4;
    config.prefix_cache = false;
    config.running_max = 2;
    Use(config);
    first_ = &Send(Make(60, 190));
    second_ = &Send(Make(40, 190, 1000));
    Step();
  }
  Sequence* first_;
  Sequence* second_;
};

TEST_F(ScarceTest, TheLastSequenceIsPreemptedWhenBlocksAreTooFew) {
  for (int i = 0; i < 300 && second_->preemptions == 0; ++i) Step();
  EXPECT_EQ(second_->preemptions, 1);
  EXPECT_EQ(first_->preemptions, 0);
  EXPECT_TRUE(first_->Is<Decoding>());
  EXPECT_FALSE(rank().starving.valid());
}

TEST_F(ScarceTest, APriorityDecidesWhoIsPreempted) {
  parts_->life_cycle.Abort(second_->id, FinishReason::kAbort);
  parts_->life_cycle.TakeOutputs();
  Request r = Make(60, 190, 1000);
  r.priority = 1;
  second_ = &Send(r);
  for (int i = 0; i < 300 && first_->preemptions == 0 && !second_->Is<Finished>(); ++i) Step();
  EXPECT_EQ(first_->preemptions, 1);
  EXPECT_EQ(second_->preemptions, 0);
}

TEST_F(ScarceTest, WhileAVictimsRowsAreInFlightNobodyElseIsPreempted) {
  Plan before = planner().Next();
  Plan next;
  for (int i = 0; i < 300; ++i) {
    next = planner().Next();
    if (rank().draining > 0) break;
    if (!before.empty()) Complete(DoneOf(before));
    before = std::move(next);
  }
  ASSERT_EQ(rank().draining, 1);
  EXPECT_TRUE(next.empty());
  EXPECT_TRUE(rank().starving.valid());
  EXPECT_EQ(second_->preemptions, 1);
  Complete(DoneOf(before));
  EXPECT_EQ(rank().draining, 0);
  EXPECT_EQ(RowsOf(planner().Next()), (Rows{{first_->id.value, 1}}));
  EXPECT_FALSE(rank().starving.valid());
  EXPECT_EQ(first_->preemptions, 0);
}

TEST_F(StepPlannerTest, DecodeLatencyRationsPromptsOnlyBesideDecodes) {
  SchedulerConfig config = Config();
  config.decode_latency_us = 1000;
  Use(config);
  Send(Make(500, 100));
  EXPECT_EQ(planner().Next().tokens.size(), 500u);  // nobody decodes
}

TEST_F(StepPlannerTest, ARationGrowsWithMeasuredSteps) {
  SchedulerConfig config = Config();
  config.decode_latency_us = 1300;
  Use(config);
  Send(Make(30, 100));
  Plan plan = planner().Next();
  StepDone done = DoneOf(plan);
  done.duration_us = 30;  // 1 us for each prompt token
  Complete(done);
  Send(Make(900, 100, 1000));
  plan = planner().Next();
  EXPECT_EQ(plan.tokens.size(), 1u + 832u);  // 1300 in whole blocks exceed it: up to its cut
  done = DoneOf(plan);
  done.duration_us = 8320;  // (3 * 1 + 10) / 4 = 3.25 us each: six blocks
  Complete(done);
  Send(Make(900, 100, 3000));
  plan = planner().Next();
  EXPECT_EQ(plan.tokens.size(), 1u + 68u + 256u);
}

// A block of a prompt takes longer than a step may.
class SlowPrefillTest : public StepPlannerTest {
 protected:
  SlowPrefillTest() {
    SchedulerConfig config = Config();
    config.decode_latency_us = 4000;
    Use(config);
    decoding_ = &Send(Make(30, 500));
    Land(planner().Next(), 3000);  // 100 us for each token
    Land(planner().Next(), 500);
  }
  void Land(const Plan& plan, int64_t duration_us) {
    StepDone done = DoneOf(plan);
    done.duration_us = duration_us;
    Complete(done);
  }

  Sequence* decoding_;
};

TEST_F(SlowPrefillTest, PromptsGetLessThanABlock) {
  Sequence& s = Send(Make(500, 8, 1000));
  struct Step {
    int32_t tokens;
    int64_t token_us;
  };
  // What 3.5 ms are.
  for (const Step step : {Step{35, 100}, Step{35, 100}, Step{35, 70}, Step{37, 70}, Step{40, 70}}) {
    const Plan plan = planner().Next();
    EXPECT_EQ(RowsOf(plan), (Rows{{decoding_->id.value, 1}, {s.id.value, step.tokens}}));
    Land(plan, 500 + step.token_us * step.tokens);
  }
}

TEST_F(SlowPrefillTest, AQuarterOfABlockIsComputedThoughItTakesLonger) {
  Sequence& s = Send(Make(500, 8, 1000));
  Land(planner().Next(), 500 + 35 * 4000);
  EXPECT_EQ(RowsOf(planner().Next()), (Rows{{decoding_->id.value, 1}, {s.id.value, 16}}));
}

TEST_F(SlowPrefillTest, AStepThatCannotBeShortHasAWholeBlock) {
  Sequence& s = Send(Make(500, 8, 1000));
  Land(planner().Next(), 500 + 35 * 8000);
  for (const int32_t count : {29, 64, 64}) {  // up to the boundary first
    const Plan plan = planner().Next();
    EXPECT_EQ(RowsOf(plan), (Rows{{decoding_->id.value, 1}, {s.id.value, count}}));
    Land(plan, 500 + 8000 * count);
  }
}

TEST_F(SlowPrefillTest, AShortPromptAndALongOneTakeTurns) {
  Sequence& big = Send(Make(500, 8, 1000));
  Sequence& small = Send(Make(40, 8, 2000));
  const std::pair<int64_t, int32_t> decode = {decoding_->id.value, 1};
  for (const Rows& rows : {Rows{decode, {big.id.value, 35}}, Rows{decode, {small.id.value, 35}},
                           Rows{decode, {big.id.value, 35}},
                           Rows{decode, {small.id.value, 5}, {big.id.value, 30}}}) {
    const Plan plan = planner().Next();
    EXPECT_EQ(RowsOf(plan), rows);
    Land(plan, 500 + 100 * 35);
  }
}

TEST_F(StepPlannerTest, PromptsTakeTurnsWithABudgetOfOneBlock) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 64;
  Use(config);
  Sequence& first = Send(Make(500, 8));
  Sequence& other = Send(Make(400, 8, 2000));
  for (const RequestId id : {first.id, other.id, first.id, other.id}) {
    EXPECT_EQ(RowsOf(Step()), (Rows{{id.value, 64}}));
  }
}

TEST_F(SlowPrefillTest, WhatIsWorthNoRowIsLeftToTheFirst) {
  Sequence& big = Send(Make(500, 8, 1000));
  Sequence& small = Send(Make(28, 8, 2000));
  Send(Make(400, 8, 3000));
  Land(planner().Next(), 500 + 100 * 35);
  EXPECT_EQ(RowsOf(planner().Next()), (Rows{{decoding_->id.value, 1},  // it is the others' turn
                                            {small.id.value, 28},
                                            {big.id.value, 7}}));
}

TEST_F(StepPlannerTest, RanksHaveABudgetEachAndTheirRowsInOrder) {
  SchedulerConfig config = Config();
  config.dp_ranks = 2;
  config.step_tokens_max = 64;
  Use(config);
  for (int i = 0; i < 2; ++i) {
    Request r = Make(200, 8, 100 + 1000 * i);
    r.dp_rank = 1 - i;
    Send(r);
  }
  const Plan plan = planner().Next();
  EXPECT_EQ(plan.dp_rank_rows, (std::vector<int32_t>{1, 1}));
  EXPECT_EQ(RowsOf(plan), (Rows{{1, 64}, {0, 64}}));
  EXPECT_EQ(plan.rows[1].token_begin, 64);
  EXPECT_EQ(plan.tokens[64], 100);
  EXPECT_EQ(plan.rows[1].slot, SlotId(4));
}

TEST_F(StepPlannerTest, ASlotThatIsTakenAgainIsNotReleased) {
  SchedulerConfig config = Config();
  config.running_max = 1;
  Use(config);
  Sequence& s = Send(Make(30, 50));
  Step();
  Send(Make(30, 50, 1000));
  parts_->life_cycle.Abort(s.id, FinishReason::kAbort);
  const Plan plan = planner().Next();
  ASSERT_EQ(plan.admissions.size(), 1u);
  EXPECT_EQ(plan.admissions[0].slot, SlotId(0));
  EXPECT_THAT(plan.released, IsEmpty());
}

TEST_F(StepPlannerTest, ASlotThatIsLeftIsReleasedWithTheNextPlan) {
  Sequence& a = Send(Make(30, 50));
  Send(Make(30, 50, 1000));
  Step();
  parts_->life_cycle.Abort(a.id, FinishReason::kAbort);
  EXPECT_THAT(planner().Next().released, ElementsAre(SlotId(0)));
}

using StepPlannerDeathTest = StepPlannerTest;

TEST_F(StepPlannerDeathTest, StepsComeBackInOrderAndComplete) {
  Send(Make(30, 50));
  Step();
  const Plan first = planner().Next(), second = planner().Next();
  EXPECT_DEATH(planner().TakeStep(DoneOf(second)), "step 2 was not the oldest in flight");
  EXPECT_DEATH(planner().TakeStep({first.step, {}}), "step 1 has 1 rows, 0 came back");
  EXPECT_DEATH(planner().Next(), "2 steps are in flight");
}

}  // namespace
}  // namespace braid
