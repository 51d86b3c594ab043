// What becomes of a request when its rows and moves come back, and when somebody ends it.
#include "scheduler/life_cycle/life_cycle.h"

#include <gmock/gmock.h>

#include "scheduler/testing/parts_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LifeCycleTest : public PartsFixture {
 protected:
  LifeCycle& life() { return parts_->life_cycle; }
  // Its prompt is computed and its first token taken.
  Sequence& Decodes(const Request& r) {
    Sequence& s = Send(r);
    Step();
    EXPECT_TRUE(s.Is<Decoding>());
    life().TakeOutputs();
    return s;
  }
};

TEST_F(LifeCycleTest, ASubmittedRequestWaitsWithItsLengthsBounded) {
  SchedulerConfig config = Config();
  config.context_tokens_max = 100;
  Use(config);
  const Sequence& s = Send(Make(90, 50));
  EXPECT_TRUE(s.waiting);
  EXPECT_TRUE(s.Is<Queued>());
  EXPECT_EQ(s.length_max, 100);
  EXPECT_EQ(s.stored_max, 99);  // the last sampled token is never stored
  EXPECT_EQ(parts_->admission.queue().size(), 1);
  EXPECT_THAT(life().TakeOutputs(), IsEmpty());
}

TEST_F(LifeCycleTest, AFullQueueRefusesTheNextRequestAndKeepsTheOthers) {
  SchedulerConfig config = Config();
  config.waiting_max = 2;
  Use(config);
  Send(Make(10));
  Send(Make(10));
  const Request third = Make(11);
  life().Submit(third);
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].id, third.id);
  EXPECT_EQ(outputs[0].finish, FinishReason::kError);
  EXPECT_EQ(outputs[0].error_code, ErrorCode::kExhausted);
  EXPECT_THAT(outputs[0].error, HasSubstr("the queue is full: 2 requests wait, and at most 2 may"));
  EXPECT_EQ(outputs[0].prompt_tokens, 11);
  EXPECT_FALSE(life().sequences().contains(third.id));
  EXPECT_EQ(parts_->admission.queue().size(), 2);
  EXPECT_THAT(life().TakeOutputs(), IsEmpty());  // said once
}

TEST_F(LifeCycleTest, AnAbortedRequestThatWaitsEndsAtOnce) {
  const Request r = Make(10);
  Send(r);
  life().Abort(r.id, FinishReason::kStop);
  EXPECT_TRUE(parts_->admission.queue().empty());
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kStop);
  EXPECT_TRUE(life().sequences().empty());
  EXPECT_EQ(life().counts().finished, 1);
}

TEST_F(LifeCycleTest, APreemptedRequestWaitsForNoGrammarAgain) {
  SchedulerConfig config = Config();
  config.grammar_ranks = 1;
  Use(config);
  Request r = Make(10);
  r.grammar = "regex";
  Sequence& s = Send(r);
  EXPECT_EQ(parts_->admission.queue().First(DpRankId()), nullptr);
  life().TakeGrammar({.request = r.id, .error = {}});
  Step();
  EXPECT_TRUE(s.Is<Decoding>());
  life().Preempt(s);
  EXPECT_EQ(parts_->admission.unready(), 0);
  EXPECT_EQ(parts_->admission.queue().First(DpRankId()), &s);
}

TEST_F(LifeCycleTest, AnAbortOfAnEndedOrUnknownRequestChangesNothing) {
  const Request r = Make(10);
  Send(r);
  life().Abort(r.id, FinishReason::kAbort);
  life().Abort(r.id, FinishReason::kStop);
  life().Abort(RequestId(77), FinishReason::kAbort);
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kAbort);
  EXPECT_EQ(life().counts().finished, 1);
}

TEST_F(LifeCycleTest, AnAbortedSequenceKeepsSlotAndBlocksUntilItsRowIsOver) {
  Sequence& s = Send(Make(100));
  const Plan plan = parts_->planner.Next();
  life().Abort(s.id, FinishReason::kAbort);
  EXPECT_TRUE(rank().running.empty());
  EXPECT_EQ(rank().free_slots.size(), 3);
  EXPECT_GT(rank().cache.pool().pages_used(), 0);
  life().TakeOutputs();
  Complete(DoneOf(plan));
  EXPECT_EQ(rank().free_slots.size(), 4);
  EXPECT_EQ(rank().cache.pool().pages_used(), 0);
  EXPECT_THAT(life().TakeOutputs(), IsEmpty());  // its token is discarded
  EXPECT_TRUE(life().sequences().empty());
  EXPECT_EQ(life().TakeDeparted(), std::vector<SlotId>{SlotId(0)});
  EXPECT_THAT(life().TakeDeparted(), IsEmpty());
}

TEST_F(LifeCycleTest, AFailedRowEndsItsRequestWithItsErrorAndPublishesNothing) {
  Request r = Make(200);
  Send(r);
  const Plan plan = parts_->planner.Next();
  StepDone done = DoneOf(plan);
  done.rows[0].error = "a logit is not finite";
  done.rows[0].error_code = ErrorCode::kInvalid;
  Complete(done);
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kError);
  EXPECT_EQ(outputs[0].error, "a logit is not finite");
  EXPECT_EQ(outputs[0].error_code, ErrorCode::kInvalid);
  EXPECT_THAT(outputs[0].tokens, IsEmpty());
  EXPECT_EQ(rank().cache.pool().pages_cached(), 0);
  EXPECT_EQ(rank().cache.pool().pages_used(), 0);
}

TEST_F(LifeCycleTest, AStopTokenEndsAnAnswerOnlyAfterItsLeastLength) {
  Request r = Make(10);
  r.stop.stop_tokens = {5, 7};
  r.stop.new_tokens_min = 2;
  Sequence& s = Send(r);
  Step();
  Step();
  EXPECT_THAT(s.output, ElementsAre(7, 7));  // the first two are too early
  EXPECT_TRUE(s.Is<Decoding>());
  Step();
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kStop);
  EXPECT_THAT(outputs[0].tokens, ElementsAre(7, 7, 7));
  EXPECT_EQ(outputs[0].output_tokens, 3);
}

TEST_F(LifeCycleTest, TheLastTokenOfTheLengthEndsTheAnswer) {
  Send(Make(10, 2));
  Step();
  Step();
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kLength);
  EXPECT_EQ(outputs[0].output_tokens, 2);
  EXPECT_TRUE(rank().running.empty());
}

TEST_F(LifeCycleTest, ARequestWithoutNewTokensEndsWithItsPrompt) {
  Request r = Make(70, 0);
  r.prompt_logprobs = 0;
  Send(r);
  Step();
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kLength);
  EXPECT_EQ(outputs[0].prompt_logprobs.size(), 70u);
  EXPECT_THAT(outputs[0].tokens, IsEmpty());
}

// A long prompt's are not gathered until it is computed.
TEST_F(LifeCycleTest, PromptLogprobsComeWithEachChunk) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 64;
  Use(config);
  Request r = Make(150, 1);
  r.prompt_logprobs = 0;
  Send(r);
  for (const size_t tokens : {64u, 64u, 22u}) {
    Step();
    const std::vector<Output> outputs = life().TakeOutputs();
    ASSERT_EQ(outputs.size(), 1u) << tokens;
    EXPECT_EQ(outputs[0].prompt_logprobs.size(), tokens);
  }
}

TEST_F(LifeCycleTest, LogprobsComeWithTheirTokensAndOnlyWhenAskedFor) {
  Request silent = Make(10), wants = Make(10);
  wants.logprobs = 0;
  Send(silent);
  Send(wants);
  StepDone done = DoneOf(parts_->planner.Next());
  for (RowResult& row : done.rows) row.logprob = {.token = 7, .logprob = -0.5f, .top = {}};
  Complete(done);
  for (const Output& output : life().TakeOutputs()) {
    EXPECT_EQ(output.logprobs.size(), output.id == wants.id ? 1u : 0u);
  }
}

TEST_F(LifeCycleTest, OutputsOfAStepAreTakenOnce) {
  Sequence& s = Send(Make(10));
  Step();
  EXPECT_EQ(life().TakeOutputs().size(), 1u);
  EXPECT_THAT(life().TakeOutputs(), IsEmpty());
  Step();
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].tokens.size(), 1u);
  EXPECT_EQ(outputs[0].output_tokens, 2);
  EXPECT_FALSE(s.changed);
}

TEST_F(LifeCycleTest, AcceptedDraftsComeBeforeTheSampledTokenAndRejectedOnesNever) {
  SchedulerConfig config = Config();
  config.draft_tokens_max = 4;
  Use(config);
  Sequence& s = Decodes(Make(10, 20));
  s.drafts = {21, 22, 23};
  const Plan plan = parts_->planner.Next();
  ASSERT_EQ(plan.rows[0].drafts, 3);
  StepDone done = DoneOf(plan, 24);
  done.rows[0].accepted = 2;
  done.rows[0].drafts = {31};
  Complete(done);
  EXPECT_THAT(s.output, ElementsAre(7, 21, 22, 24));
  EXPECT_EQ(s.planned, s.known_tokens() - 1);
  EXPECT_THAT(s.drafts, ElementsAre(31));
  EXPECT_EQ(life().counts().drafts.accepted_total(), 2);
}

TEST_F(LifeCycleTest, AcceptanceIsLearntUpToTheFirstWrongDraft) {
  SchedulerConfig config = Config();
  config.draft_tokens_max = 4;
  config.draft_adapt = true;
  Use(config);
  Sequence& s = Decodes(Make(10, 20));
  s.drafts = {21, 22, 23};
  StepDone done = DoneOf(parts_->planner.Next(), 24);
  done.rows[0].accepted = 1;
  const auto source = static_cast<size_t>(s.drafts_of);
  const Acceptance before = s.acceptance[source];
  Complete(done);
  const Acceptance& after = s.acceptance[source];
  EXPECT_GT(after.chance(0), before.chance(0));
  EXPECT_LT(after.chance(1), before.chance(1));
  EXPECT_EQ(after.chance(2), before.chance(2));  // nobody knows
}

TEST_F(LifeCycleTest, AnAcceptedStopTokenEndsTheAnswerBeforeTheSampledOne) {
  SchedulerConfig config = Config();
  config.draft_tokens_max = 4;
  Use(config);
  Request r = Make(10, 20);
  r.stop.stop_tokens = {22};
  Sequence& s = Decodes(r);
  s.drafts = {21, 22, 23};
  StepDone done = DoneOf(parts_->planner.Next(), 24);
  done.rows[0].accepted = 3;
  Complete(done);
  const std::vector<Output> outputs = life().TakeOutputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kStop);
  EXPECT_THAT(outputs[0].tokens, ElementsAre(21, 22));
}

TEST_F(LifeCycleTest, APreemptedSequenceReturnsItsBlocksAndWaitsAgain) {
  Sequence& s = Decodes(Make(100));
  life().Preempt(s);
  EXPECT_TRUE(s.Is<Preempted>());
  EXPECT_TRUE(s.waiting);
  EXPECT_EQ(s.preemptions, 1);
  EXPECT_FALSE(s.dp_rank.valid());
  EXPECT_FALSE(s.slot.valid());
  EXPECT_EQ(rank().cache.pool().pages_used(), 0);
  EXPECT_EQ(rank().free_slots.size(), 4);
  EXPECT_TRUE(rank().preempted);
  EXPECT_EQ(rank().draining, 0);
  EXPECT_EQ(parts_->admission.queue().preempted(), 1);
  EXPECT_EQ(life().counts().preemptions, 1);
}

TEST_F(LifeCycleTest, ASequencePreemptedInFlightKeepsItsBlocksUntilItsRowIsOver) {
  Sequence& s = Decodes(Make(100));
  const Plan plan = parts_->planner.Next();
  life().Preempt(s);
  EXPECT_EQ(rank().draining, 1);
  EXPECT_FALSE(s.waiting);
  EXPECT_GT(rank().cache.pool().pages_used(), 0);
  Complete(DoneOf(plan, 9));
  EXPECT_EQ(rank().draining, 0);
  EXPECT_TRUE(s.waiting);
  EXPECT_EQ(rank().cache.pool().pages_used(), 0);
  EXPECT_THAT(s.output, ElementsAre(7, 9));  // the row's token counts
}

TEST_F(LifeCycleTest, AnAbortWhileBlocksDrainEndsTheDraining) {
  Sequence& s = Decodes(Make(100));
  const Plan plan = parts_->planner.Next();
  life().Preempt(s);
  life().Abort(s.id, FinishReason::kAbort);
  EXPECT_EQ(rank().draining, 0);
  Complete(DoneOf(plan));
  EXPECT_TRUE(parts_->admission.queue().empty());
  EXPECT_EQ(rank().cache.pool().pages_used(), 0);
}

// A request that lost its blocks as often as it may comes back with all that it can ever need, is
// not chosen again however scarce blocks are, and ends.
TEST_F(LifeCycleTest, TheLimitOfPreemptionsLetsARequestEnd) {
  SchedulerConfig config = Config();
  config.preemptions_max = 2;
  config.cache.pages = 1 + 16;
  config.running_max = 2;
  Use(config);
  Request first = Make(60, 300), second = Make(60, 300, 1000);
  first.priority = 1;  // the second is the victim
  Send(first);
  Sequence& s = Send(second);
  for (int i = 0; i < 2; ++i) {
    Step();
    ASSERT_EQ(rank().running.size(), 2u);
    life().Preempt(s);
  }
  EXPECT_EQ(s.preemptions, config.preemptions_max);
  std::map<RequestId, FinishReason> ends;
  for (int i = 0; i < 2000 && ends.size() < 2; ++i) {
    Step();
    for (const Output& o : life().TakeOutputs()) {
      if (!o.finish) continue;
      ends[o.id] = *o.finish;
      EXPECT_EQ(o.preemptions, o.id == second.id ? config.preemptions_max : 0);
    }
    if (ends.contains(second.id) || s.waiting) continue;
    // Protected: it finds no prefixes, publishes none, and owns every block from the start.
    EXPECT_FALSE(s.reuses);
  }
  EXPECT_EQ(ends[first.id], FinishReason::kLength);
  EXPECT_EQ(ends[second.id], FinishReason::kLength);
}

TEST_F(LifeCycleTest, AReceiverWhosePagesArrivedGoesOnAndOthersMayReuseThem) {
  SchedulerConfig config = Config();
  config.handoff = true;
  Use(config);
  Request r = Make(200);
  r.role = RequestRole::kDecode;
  Sequence& s = Send(r);
  parts_->planner.Next();
  EXPECT_TRUE(s.Is<Receiving>());
  EXPECT_EQ(parts_->moves.under_way(), 1);
  life().CompleteMove({.move = MoveId(0), .error = {}, .lost = {}, .token = 11, .logprob = {}});
  EXPECT_EQ(parts_->moves.under_way(), 0);
  EXPECT_TRUE(s.Is<Decoding>());
  EXPECT_THAT(s.output, ElementsAre(11));
  EXPECT_EQ(s.blocks.published(), 192);
  life().CompleteMove({.move = MoveId(0), .error = {}, .lost = {}, .token = 12, .logprob = {}});
  EXPECT_THAT(s.output, ElementsAre(11));  // a peer may repeat itself
  EXPECT_EQ(life().counts().moves, 1);
  EXPECT_EQ(life().counts().moves_failed, 0);
}

TEST_F(LifeCycleTest, AReceiverWithoutItsPagesOrItsTokenComputesThePromptItself) {
  SchedulerConfig config = Config();
  config.handoff = true;
  Use(config);
  for (const auto& [token, error] :
       {std::pair<TokenId, const char*>{11, "the peer is gone"}, {-1, ""}, {5000, ""}}) {
    Request r = Make(200);
    r.role = RequestRole::kDecode;
    Sequence& s = Send(r);
    Step();
    life().CompleteMove(
        {.move = s.move, .error = error, .lost = {}, .token = token, .logprob = {}});
    EXPECT_TRUE(s.Is<Preempted>());
    EXPECT_TRUE(s.waiting);
    EXPECT_FALSE(s.receives);
    EXPECT_EQ(s.preemptions, 0);  // nobody took its blocks
    EXPECT_EQ(s.blocks.published(), 0);
    life().Abort(r.id, FinishReason::kAbort);
    life().TakeOutputs();
  }
  EXPECT_EQ(life().counts().moves_failed, 1);
}

TEST_F(LifeCycleTest, ASenderEndsWithItsMove) {
  SchedulerConfig config = Config();
  config.handoff = true;
  Use(config);
  for (const char* error : {"", "the peer is gone"}) {
    Request r = Make(100);
    r.role = RequestRole::kPrefill;
    Sequence& s = Send(r);
    Step();
    EXPECT_TRUE(s.Is<Sending>());
    const Plan plan = parts_->planner.Next();
    ASSERT_EQ(plan.moves.size(), 1u);
    life().CompleteMove(
        {.move = plan.moves[0].id, .error = error, .lost = {}, .token = -1, .logprob = {}});
    const std::vector<Output> outputs = life().TakeOutputs();
    ASSERT_EQ(outputs.size(), 1u);
    EXPECT_EQ(outputs[0].finish, *error == 0 ? FinishReason::kSent : FinishReason::kError);
    EXPECT_EQ(outputs[0].error, error);
    Complete({plan.step, {}});
  }
  EXPECT_EQ(rank().cache.pool().pages_used(), 0);
}

TEST_F(LifeCycleTest, AbortedMovesKeepTheirBlocksUntilTheyAreOver) {
  SchedulerConfig config = Config();
  config.handoff = true;
  Use(config);
  Request r = Make(200);
  r.role = RequestRole::kDecode;
  Send(r);
  parts_->planner.Next();
  life().Abort(r.id, FinishReason::kAbort);
  life().TakeOutputs();
  EXPECT_GT(rank().cache.pool().pages_used(), 0);
  life().CompleteMove({.move = MoveId(0), .error = {}, .lost = {}, .token = 11, .logprob = {}});
  EXPECT_EQ(rank().cache.pool().pages_used(), 0);
  EXPECT_TRUE(life().sequences().empty());
  EXPECT_THAT(life().TakeOutputs(), IsEmpty());
}

using LifeCycleDeathTest = LifeCycleTest;

TEST_F(LifeCycleDeathTest, ResultsThatDoNotFitTheirRowsStopTheProgram) {
  Sequence& s = Send(Make(100));
  const Plan plan = parts_->planner.Next();
  StepDone strange = DoneOf(plan);
  strange.rows[0].request = RequestId(55);
  EXPECT_DEATH(Complete(strange), "a result for request 55 came in the place of 0");
  EXPECT_DEATH(Complete(DoneOf(plan, 5000)), "was given token 5000");
  EXPECT_DEATH(Complete(DoneOf(plan, -1)), "was given token -1");
  EXPECT_DEATH(Send(s.request), "request id 0 is used twice");
}

}  // namespace
}  // namespace braid
