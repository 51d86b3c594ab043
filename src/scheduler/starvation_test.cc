// Who may come in once a sequence that found no blocks has got them.
#include <gtest/gtest.h>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

class StarvationTest : public SchedulerFixture {};

TEST_F(StarvationTest, NewcomersAreAdmittedAgainWhenTheSequenceThatStarvedHasItsBlocks) {
  Use(BlockConfig(11));
  const RequestId first = Send(Make(60, 250));
  const RequestId victim = Send(Make(90, 250, 1000));  // reaches the end of a block first
  while (s_.stats().preemptions == 0) ASSERT_FALSE(Step().empty());
  s_.Apply(Abort{victim});
  const RequestId late = Send(Make(10, 1, 2000));
  for (int i = 0; i < 5; ++i) Step();
  EXPECT_TRUE(outputs_[late].finish.has_value());
  EXPECT_FALSE(outputs_[first].finish.has_value());
  Drain();
}

}  // namespace
}  // namespace braid
