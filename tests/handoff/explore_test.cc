// The protocol keeps its promises in every run within bounds. BRAID_DEEP=1 explores more of them.
#include "tests/handoff/explore.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/handoff/choice_checks.h"
#include "tests/handoff/deadline_checks.h"

namespace braid::handoff {
namespace {

void KeepsItsPromises(const Bounds& bounds, int64_t states_min) {
  const Explored explored = Explore(bounds);
  EXPECT_EQ(explored.violation, "");
  EXPECT_GT(explored.states, states_min);  // the bounds leave something to explore
  EXPECT_GT(explored.ends, 10);
  ::testing::Test::RecordProperty("states", std::to_string(explored.states));
  std::printf("%ld states, %ld ends\n", explored.states, explored.ends);
}

TEST(HandoffProtocol, HoldsForOneRoomAndThreeFaults) {
  KeepsItsPromises({.prefills = 2, .decodes = 1, .rooms = 1, .parts = 2, .faults = 3}, 1000);
}

TEST(HandoffProtocol, HoldsForTwoRoomsAndTwoFaults) {
  KeepsItsPromises({.prefills = 1, .decodes = 1, .rooms = 2, .parts = 1, .faults = 2}, 1000);
}

TEST(HandoffProtocol, HoldsForThreeRoomsOfTwoByTwoEngines) {
  const bool deep = std::getenv("BRAID_DEEP") != nullptr;
  KeepsItsPromises({.parts = 1, .faults = deep ? 2 : 1}, 1000);
}

TEST(HandoffDeadlines, AreOfRoomsThatNothingLeaves) { EXPECT_EQ(BrokenByDeadlines(), ""); }

TEST(HandoffChoice, LeavesEnginesAloneThatFail) { EXPECT_EQ(BrokenByChoice(), ""); }

}  // namespace
}  // namespace braid::handoff
