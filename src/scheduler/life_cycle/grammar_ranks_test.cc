// Requests with grammars that other ranks have to compile before they can sample: who waits, who
// passes, and what ends them.
#include <gmock/gmock.h>

#include <string>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class GrammarRanksTest : public SchedulerFixture {
 protected:
  GrammarRanksTest() { UseRanks(2); }
  void UseRanks(int32_t ranks) {
    SchedulerConfig config = BlockConfig();
    config.grammar_ranks = ranks;
    Use(config);
  }
  Request Constrained() {
    Request r = Make(50, 2, 900);
    r.grammar = "regex";
    return r;
  }
  void Ready(RequestId id) {
    s_.Apply(GrammarReady{.request = id, .error = {}});
    Take();
  }
  void Fails(RequestId id) {
    s_.Apply(GrammarReady{id, "rank 1 cannot", ErrorCode::kUnavailable});
    Take();
  }
};

TEST_F(GrammarRanksTest, ARequestIsPassedUntilEveryRankIsReadyForIt) {
  const RequestId constrained = Send(Constrained());
  const RequestId plain = Send(Make(50, 2));
  EXPECT_EQ(s_.unready(), 1);
  EXPECT_EQ(s_.stats().waiting, 2);
  EXPECT_THAT(Ids(Step()), ElementsAre(plain.value));
  Ready(constrained);
  EXPECT_EQ(s_.unready(), 1);
  EXPECT_THAT(Ids(Step()), ElementsAre(plain.value));
  EXPECT_TRUE(s_.NextPlan().empty());
  EXPECT_FALSE(s_.idle());
  Ready(constrained);
  EXPECT_EQ(s_.unready(), 0);
  EXPECT_THAT(Ids(Step()), ElementsAre(constrained.value));
  Ready(constrained);  // of no consequence
  Drain();
  EXPECT_EQ(outputs_[constrained].tokens.size(), 2u);
}

TEST_F(GrammarRanksTest, WhereNoRankHasToSaySoTheRequestRunsAtOnce) {
  UseRanks(0);
  const RequestId constrained = Send(Constrained());
  EXPECT_EQ(s_.unready(), 0);
  EXPECT_THAT(Ids(Step()), ElementsAre(constrained.value));
}

TEST_F(GrammarRanksTest, ARankThatCannotCompileEndsTheRequestAndNobodyElse) {
  const RequestId first = Send(Constrained()), second = Send(Constrained());
  Ready(first);
  Fails(first);
  EXPECT_EQ(outputs_[first].finish, FinishReason::kError);
  EXPECT_EQ(outputs_[first].error, "rank 1 cannot");
  EXPECT_EQ(outputs_[first].error_code, ErrorCode::kUnavailable);
  EXPECT_EQ(s_.unready(), 1);
  Fails(first);
  Ready(first);
  Ready(second);
  Ready(second);
  EXPECT_THAT(Ids(Step()), ElementsAre(second.value));
  Fails(second);  // all ranks have said that they can
  Drain();
  EXPECT_EQ(outputs_[second].finish, FinishReason::kLength);
}

TEST_F(GrammarRanksTest, WhoeverEndsTheRequestRanksThatSayMoreDoNoHarm) {
  const RequestId aborted = Send(Constrained()), stopped = Send(Constrained());
  Ready(stopped);
  s_.Apply(Abort{aborted});
  Take();
  EXPECT_EQ(outputs_[aborted].finish, FinishReason::kAbort);
  EXPECT_EQ(s_.unready(), 1);
  s_.Apply(StopRequested{.now = true});
  Take();
  EXPECT_EQ(outputs_[stopped].finish, FinishReason::kAbort);
  EXPECT_EQ(s_.unready(), 0);
  for (const RequestId id : {aborted, stopped, RequestId(99)}) {
    Ready(id);
    Fails(id);
  }
  EXPECT_TRUE(s_.idle());
  EXPECT_THAT(Ids(s_.NextPlan()), IsEmpty());
}

}  // namespace
}  // namespace braid
