// Guesses in decode rows, and prompts that are computed by one engine and decoded by another.
#include <gmock/gmock.h>

#include "scheduler/limits.h"
#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DraftTest : public SchedulerFixture {
 protected:
  DraftTest() : SchedulerFixture(Config(3)) {}
  static SchedulerConfig Config(int32_t drafts) {
    SchedulerConfig config = BlockConfig();
    config.draft_tokens_max = drafts;
    return config;
  }
  // The one row's tokens are sampled with so many guesses accepted, and new guesses come with it.
  void LandDrafts(const Plan& plan, int32_t accepted, std::vector<TokenId> drafts) {
    StepDone done = ResultOf(plan);
    done.rows.at(0).accepted = accepted;
    done.rows.at(0).drafts = std::move(drafts);
    CompleteRow(std::move(done));
  }
  // A request of `tokens` that has just sampled its first token and been given guesses.
  RequestId Start(int32_t tokens, int32_t new_tokens, std::vector<TokenId> stops = {}) {
    Request r = Make(tokens, new_tokens);
    r.stop.stop_tokens = std::move(stops);
    Send(r);
    LandDrafts(s_.NextPlan(), 0, {101, 102, 103});
    return r.id;
  }
};

TEST_F(DraftTest, ARowCarriesTheGuessesBehindTheTokenThatIsKnown) {
  Start(20, 50);
  const Plan plan = s_.NextPlan();
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_EQ(plan.rows[0].start, 20);
  EXPECT_EQ(plan.rows[0].token_count, 4);
  EXPECT_EQ(plan.rows[0].drafts, 3);
  EXPECT_THAT(plan.tokens, ElementsAre(7, 101, 102, 103));
}

TEST_F(DraftTest, TheNextRowStartsBehindWhatWasAccepted) {
  for (int32_t accepted = 0; accepted <= 3; ++accepted) {
    Use(Config(3));
    const RequestId id = Start(20, 50);
    LandDrafts(s_.NextPlan(), accepted, {});
    std::vector<TokenId> want = {7, 101, 102, 103};
    want.resize(static_cast<size_t>(1 + accepted));
    want.push_back(7);
    EXPECT_EQ(outputs_[id].tokens, want);
    const Plan next = s_.NextPlan();
    EXPECT_EQ(next.rows.at(0).start, 21 + accepted);
    EXPECT_EQ(next.rows.at(0).drafts, 0);
    CompleteRow(next);
    Drain();
    EXPECT_EQ(outputs_[id].tokens.size(), 50u);
  }
}

TEST_F(DraftTest, GuessesNeverCompleteABlock) {
  // The known token is at position `start`; the guesses stay in the block of the one after it.
  constexpr std::pair<int32_t, int32_t> kStartAndDrafts[] = {{59, 3}, {60, 2}, {61, 1},
                                                             {62, 0}, {63, 3}, {64, 3}};
  for (const auto& [start, drafts] : kStartAndDrafts) {
    Use(Config(3));
    Start(start, 50);
    const Plan plan = s_.NextPlan();
    EXPECT_EQ(plan.rows.at(0).start, start);
    EXPECT_EQ(plan.rows.at(0).drafts, drafts) << start;
  }
}

TEST_F(DraftTest, AStopTokenAmongTheGuessesEndsTheAnswerThere) {
  const RequestId id = Start(20, 50, {102});
  LandDrafts(s_.NextPlan(), 3, {104});
  EXPECT_THAT(outputs_[id].tokens, ElementsAre(7, 101, 102));
  EXPECT_EQ(outputs_[id].finish, FinishReason::kStop);
  EXPECT_TRUE(s_.idle());
}

TEST_F(DraftTest, GuessesStayWithinTheLength) {
  const RequestId id = Start(20, 3);
  const Plan plan = s_.NextPlan();
  EXPECT_EQ(plan.rows.at(0).drafts, 1);
  LandDrafts(plan, 1, {104});
  EXPECT_THAT(outputs_[id].tokens, ElementsAre(7, 101, 7));
  EXPECT_EQ(outputs_[id].finish, FinishReason::kLength);
}

TEST_F(DraftTest, NoRowIsPlannedOverGuessesInFlight) {
  Start(20, 50);
  const Plan plan = s_.NextPlan();
  EXPECT_TRUE(s_.NextPlan().empty());
  LandDrafts(plan, 2, {});
  EXPECT_EQ(Step().rows.at(0).start, 23);
}

TEST_F(DraftTest, EverySequenceHasItsTokenBeforeAnybodyHasGuesses) {
  SchedulerConfig config = Config(40);
  config.step_tokens_max = 64;
  config.running_max = 4;
  Use(config);
  for (TokenId i = 0; i < 4; ++i) Send(Make(3, 30, 100 * i));
  StepDone done = ResultOf(s_.NextPlan());
  ASSERT_EQ(done.rows.size(), 4u);
  for (RowResult& row : done.rows) row.drafts.assign(40, 9);
  CompleteRow(std::move(done));
  const Plan plan = s_.NextPlan();
  ASSERT_EQ(plan.rows.size(), 4u);
  EXPECT_EQ(plan.tokens.size(), 4u + (64 - 4) / 2);  // half of what is left goes to guesses
}

class HandoffTest : public SchedulerFixture {
 protected:
  // A step; its moves are remembered by whose they are.
  Plan Step() {
    Plan plan = SchedulerFixture::Step();
    for (const PageMove& move : plan.moves) moves_[move.request] = move.id;
    return plan;
  }
  HandoffTest() : SchedulerFixture(Config()) {}
  static SchedulerConfig Config(int32_t pages = 200) {
    SchedulerConfig config = BlockConfig(pages);
    config.handoff = true;
    return config;
  }
  Request MakeFor(RequestRole role, int32_t tokens, int32_t new_tokens, TokenId first = 10) {
    Request r = Make(tokens, new_tokens, first);
    r.role = role;
    return r;
  }
  void End(RequestId id, TokenId token, std::string error = "") {
    s_.Apply(PagesMoved{.move = moves_.at(id),
                        .error = std::move(error),
                        .lost = {},
                        .token = token,
                        .logprob = {}});
    Take();
  }
  std::map<RequestId, MoveId> moves_;
};

TEST_F(HandoffTest, APromptThatIsAwaitedHasAllItsBlocksAndNoRow) {
  const RequestId id = Send(MakeFor(RequestRole::kDecode, 200, 5));
  const Plan plan = Step();
  ASSERT_EQ(plan.moves.size(), 1u);
  EXPECT_TRUE(plan.rows.empty());
  EXPECT_TRUE(plan.moves[0].in());
  EXPECT_EQ(plan.moves[0].parts.size(), 4u + 2u);
  EXPECT_EQ(plan.moves[0].begin, 0);
  EXPECT_EQ(plan.moves[0].end, 200);
  EXPECT_EQ(plan.tables.size(), 4u + 2u);  // keys of four blocks; the state at 192 and its rows
  EXPECT_TRUE(Step().empty());
  End(id, 42);
  const Plan decode = Step();
  EXPECT_EQ(decode.rows.at(0).start, 200);
  EXPECT_THAT(decode.tokens, ElementsAre(42));
  Drain();
  EXPECT_THAT(outputs_[id].tokens, ElementsAre(42, 7, 7, 7, 7));
}

TEST_F(HandoffTest, PagesThatArrivedAreReusedAndNotBefore) {
  const RequestId id = Send(MakeFor(RequestRole::kDecode, 200, 1));
  Step();
  EXPECT_EQ(Send(MakeFor(RequestRole::kBoth, 200, 1)).value, 1);
  EXPECT_EQ(Step().rows.at(0).start, 0);
  End(id, 42);
  Drain();
  Request third = MakeFor(RequestRole::kDecode, 260, 2);
  Send(third);
  const Plan plan = Step();
  EXPECT_EQ(plan.moves.at(0).begin, 192);  // only the rest has to come
  End(third.id, 43);
  Drain();
}

TEST_F(HandoffTest, TheFirstTokenOfTheVocabularyArrivesAsAnyOther) {
  const RequestId id = Send(MakeFor(RequestRole::kDecode, 200, 2));
  Step();
  End(id, 0);
  Drain();
  EXPECT_THAT(outputs_[id].tokens, ElementsAre(0, 7));
  const RequestId outside = Send(MakeFor(RequestRole::kDecode, 200, 2, 3000));
  Step();
  End(outside, 5000);  // no token of this vocabulary: its prompt is computed here
  Drain();
  EXPECT_THAT(outputs_[outside].tokens, ElementsAre(7, 7));
}

TEST_F(HandoffTest, APromptThatDoesNotArriveIsComputedHere) {
  const RequestId id = Send(MakeFor(RequestRole::kDecode, 200, 2));
  Step();
  End(id, -1, "the peer is gone");
  const Plan plan = Step();
  EXPECT_EQ(plan.rows.at(0).start, 0);
  EXPECT_EQ(plan.rows.at(0).token_count, 200);
  Drain();
  EXPECT_THAT(outputs_[id].tokens, ElementsAre(7, 7));
  EXPECT_EQ(s_.stats().moves_failed, 1);
}

TEST_F(HandoffTest, TokensThatArriveDoNotCountAsComputedHere) {
  const auto decode = [&](int32_t tokens, TokenId first, std::string error = "") {
    const SchedulerStats before = s_.stats();
    const RequestId id = Send(MakeFor(RequestRole::kDecode, tokens, 2, first));
    Step();
    EXPECT_EQ(s_.stats().computed_tokens, before.computed_tokens) << "it may still arrive";
    End(id, 42, std::move(error));
    Drain();
    const SchedulerStats after = s_.stats();
    return std::pair(after.computed_tokens - before.computed_tokens,
                     after.received_tokens - before.received_tokens);
  };
  EXPECT_EQ(decode(200, 10), std::pair(int64_t{0}, int64_t{200}));
  EXPECT_EQ(decode(260, 10), std::pair(int64_t{0}, int64_t{260 - 192})) << "the rest is reused";
  EXPECT_EQ(decode(200, 3000, "the peer is gone"), std::pair(int64_t{200}, int64_t{0}));
  Send(MakeFor(RequestRole::kBoth, 100, 2, 4000));
  Drain();
  const SchedulerStats stats = s_.stats();
  EXPECT_EQ(stats.computed_tokens, 200 + 100);
  EXPECT_EQ(stats.computed_tokens, stats.prefill_tokens);
  EXPECT_EQ(stats.computed_tokens + stats.received_tokens + stats.reused_tokens,
            stats.prompt_tokens);
}

TEST_F(HandoffTest, APromptForOthersIsKeptUntilItHasLeft) {
  const RequestId id = Send(MakeFor(RequestRole::kPrefill, 200, 50));
  EXPECT_EQ(Step().rows.at(0).token_count, 200);
  const Plan plan = Step();
  EXPECT_TRUE(plan.rows.empty());
  EXPECT_FALSE(plan.moves.at(0).in());
  EXPECT_EQ(plan.moves.at(0).parts.size(), 4u + 2u);
  EXPECT_EQ(plan.moves.at(0).end, 200);
  EXPECT_GT(s_.stats().pages_used, 0);
  EXPECT_FALSE(s_.idle());
  End(id, -1);
  EXPECT_THAT(outputs_[id].tokens, ElementsAre(7));
  EXPECT_EQ(outputs_[id].finish, FinishReason::kSent);
  EXPECT_TRUE(s_.idle());
  EXPECT_EQ(s_.stats().pages_used, 0);
}

TEST_F(HandoffTest, AFirstTokenThatEndsTheAnswerLeavesWithThePages) {
  Request request = MakeFor(RequestRole::kPrefill, 200, 50);
  request.stop.stop_tokens = {7};
  const RequestId id = Send(request);
  Step();
  EXPECT_EQ(Step().moves.size(), 1u);
  End(id, -1);
  EXPECT_THAT(outputs_[id].tokens, ElementsAre(7));
  EXPECT_EQ(outputs_[id].finish, FinishReason::kSent);
}

TEST_F(HandoffTest, PagesThatCannotBeSentEndTheRequestWithTheReason) {
  const RequestId id = Send(MakeFor(RequestRole::kPrefill, 200, 50));
  Step();
  Step();
  End(id, -1, "the peer is gone");
  EXPECT_EQ(outputs_[id].finish, FinishReason::kError);
  EXPECT_EQ(outputs_[id].error, "the peer is gone");
}

TEST_F(HandoffTest, AnAbortKeepsThePagesUntilTheMoveIsOver) {
  for (const RequestRole role : {RequestRole::kPrefill, RequestRole::kDecode}) {
    const RequestId id = Send(MakeFor(role, 200, 50));
    while (Step().moves.empty()) ASSERT_FALSE(s_.idle());
    s_.Apply(Abort{id});
    Take();
    EXPECT_EQ(outputs_[id].finish, FinishReason::kAbort);
    EXPECT_GT(s_.stats().pages_used, 0);
    EXPECT_FALSE(s_.idle());
    End(id, 42);
    End(id, 42);  // said twice, heard once
    EXPECT_EQ(s_.stats().pages_used, 0);
    EXPECT_TRUE(s_.idle());
  }
}

TEST_F(HandoffTest, WhatIsOnItsWayIsNotChosenToMakeRoom) {
  Use(Config(16));
  Request decoding = MakeFor(RequestRole::kBoth, 250, 400);
  decoding.priority = 1;
  Send(decoding);
  Step();
  const RequestId awaited = Send(MakeFor(RequestRole::kDecode, 200, 5, 1000));
  EXPECT_EQ(Step().moves.size(), 1u);
  for (int i = 0; i < 400 && s_.stats().preemptions == 0; ++i) Step();
  EXPECT_TRUE(Step().empty());  // only the end of the move can make room
  End(awaited, 42);
  Drain();
  EXPECT_EQ(outputs_[awaited].preemptions, 0);
  EXPECT_EQ(outputs_[decoding.id].preemptions, 1);
  EXPECT_EQ(outputs_[decoding.id].tokens.size(), 400u);
}

TEST_F(HandoffTest, APromptMayComeFromElsewhereIfItHasABlockAndAnAnswer) {
  const SchedulerConfig config = Config();
  const auto may = [&](int32_t tokens, int32_t new_tokens) {
    return MayReceive(config, Make(tokens, new_tokens));
  };
  EXPECT_TRUE(may(kBlockTokens, 2));
  EXPECT_FALSE(may(kBlockTokens - 1, 2));
  EXPECT_FALSE(may(kBlockTokens, 1));  // its only token would come with the pages
  EXPECT_TRUE(may(config.context_tokens_max - 2, 50));
  EXPECT_FALSE(may(config.context_tokens_max - 1, 50));
  Request scored = Make(200, 5);
  scored.prompt_logprobs = 0;
  EXPECT_FALSE(MayReceive(config, scored));
  EXPECT_FALSE(MayReceive(config, MakeFor(RequestRole::kPrefill, 200, 5)));
  EXPECT_FALSE(MayReceive(BlockConfig(), Make(200, 5)));
}

TEST_F(HandoffTest, AnEngineThatMovesNoPagesRefusesRoles) {
  Use(BlockConfig());
  for (const RequestRole role : {RequestRole::kPrefill, RequestRole::kDecode}) {
    const Status refused = s_.Admissible(MakeFor(role, 100, 5));
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("neither sends pages nor receives them"));
  }
  EXPECT_TRUE(s_.Admissible(MakeFor(RequestRole::kBoth, 100, 5)).ok());
}

}  // namespace
}  // namespace braid
