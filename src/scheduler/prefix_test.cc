// Which prefixes a request finds, as plans show it. Numbers in names (C2.n, C3.n, C5.n) are those
// of the behavioural scenarios, in blocks of 64 tokens.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

class PrefixTest : public SchedulerFixture {
 protected:
  PrefixTest() : SchedulerFixture(Config()) {}
  static SchedulerConfig Config() {
    SchedulerConfig config = BlockConfig(199);
    config.step_tokens_max = 2048;
    return config;
  }
};

TEST_F(PrefixTest, C2_14_AtLeastOneTokenIsComputedAgain) {
  Ask(Make(256, 1));
  const Output again = Ask(Make(256, 1));
  EXPECT_EQ(again.prompt_tokens, 256);
  EXPECT_EQ(again.cached_tokens, 192);
  EXPECT_EQ(again.reuse.stop, ReuseStop::kComplete);
}

TEST_F(PrefixTest, C2_21_NothingIsReusedWhenTheCacheIsOff) {
  SchedulerConfig config = Config();
  config.prefix_cache = false;
  Use(config);
  Ask(Make(256, 1));
  EXPECT_EQ(Ask(Make(256, 1)).reuse.stop, ReuseStop::kOff);
  EXPECT_EQ(s_.stats().pages_cached, 0);
}

TEST_F(PrefixTest, C2_22_TenantsSaltsAndRanksDoNotMeet) {
  SchedulerConfig config = Config();
  config.dp_ranks = 2;
  Use(config);
  Request mine = Make(256, 1), other = Make(256, 1), rank = Make(256, 1);
  Request salted = Make(256, 1), swapped = Make(256, 1);
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
  Ask(Make(400, 1));
  const Output shorter = Ask(Make(200, 1));
  EXPECT_EQ(shorter.cached_tokens, 0);
  EXPECT_EQ(shorter.reuse.known, 192);
  EXPECT_EQ(shorter.reuse.stop, ReuseStop::kNoSnapshot);
}

TEST_F(PrefixTest, C2_28_C3_33_TheThirdRequestHitsTheBranchThatTheSecondRevealed) {
  std::vector<int32_t> reused;
  for (TokenId tail : {1000, 2000, 3000}) {
    Request r = Make(320, 1);
    for (TokenId i = 0; i < 300; ++i) r.prompt.push_back(tail + i);
    reused.push_back(Reused(r));
  }
  EXPECT_EQ(reused, (std::vector<int32_t>{0, 0, 320}));
}

TEST_F(PrefixTest, C3_40_C3_41_TheNextTurnReusesPromptAndAnswer) {
  Request turn = Make(100, 200);
  const std::vector<TokenId> answer = Ask(turn).tokens;
  Request next = Make(0, 1);
  next.prompt = turn.prompt;
  next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
  next.prompt.resize(400, 3);
  EXPECT_EQ(Reused(next), 256);  // C3.41: of 300 tokens the last was never stored
}

// The prompt that a failed request only borrowed is as good as before, whoever is to blame.
TEST_F(PrefixTest, AFailedRequestLeavesWhatItBorrowed) {
  for (ErrorCode code : {ErrorCode::kInvalid, ErrorCode::kInternal}) {
    Use(Config());
    Ask(Make(1000, 1));
    const RequestId failing = Send(Make(1000, 5));
    StepDone done = ResultOf(s_.NextPlan());
    ASSERT_EQ(done.rows.size(), 1u);
    done.rows[0].error = "no token continues the grammar";
    done.rows[0].error_code = code;
    CompleteRow(std::move(done));
    EXPECT_EQ(outputs_[failing].finish, FinishReason::kError);
    EXPECT_EQ(Reused(Make(1000, 1)), 960);
  }
}

TEST_F(PrefixTest, OfAFailedRequestOnlyWhatTheFailedStepWroteIsGone) {
  SchedulerConfig config = Config();
  config.step_tokens_max = 256;
  Use(config);
  Send(Make(1000, 5));
  Step();
  Step();
  StepDone done = ResultOf(s_.NextPlan());
  done.rows[0].error = "not finite";
  CompleteRow(std::move(done));
  EXPECT_TRUE(s_.idle());
  EXPECT_EQ(Reused(Make(1000, 1)), 512);
}

TEST_F(PrefixTest, C5_81_FlushingForgetsWhatNobodyUses) {
  Ask(Make(256, 1));
  EXPECT_GT(s_.stats().pages_cached, 0);
  s_.Apply(FlushCache{});
  EXPECT_EQ(s_.stats().pages_cached, 0);
  EXPECT_EQ(Reused(Make(256, 1)), 0);
}

TEST_F(PrefixTest, C5_65_TheConversationUsedLongestAgoMakesRoom) {
  SchedulerConfig config = Config();
  config.cache.pages = 1 + 30;
  Use(config);
  for (TokenId first : {10, 1000, 2000, 3000}) Ask(Make(500, 1, first));
  EXPECT_EQ(Reused(Make(500, 1, 3000)), 448);
  EXPECT_EQ(Ask(Make(500, 1, 10)).reuse.stop, ReuseStop::kEvicted);
}

}  // namespace
}  // namespace braid
