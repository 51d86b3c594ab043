// Sources and kinds of moves by example, and what every plan of moves must keep.
#include "experts/move_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace braid {
namespace {

TEST(MovePlan, KnowsTheFiveKinds) {
  // Nodes of two ranks of two slots.
  const ExpertShape shape{.experts = 6, .redundant = 2, .ranks = 4, .ranks_per_node = 2};
  const LayerSlots current{0, 1, 2, 3, 4, 5, 0, 1};
  const LayerSlots next{1, 2, 4, 4, 3, 5, 0, 3};
  const std::vector<SlotMove> moves = MovesOf(shape, current, next);
  using enum MoveKind;
  EXPECT_EQ(moves, (std::vector<SlotMove>{{0, 1, 1, kSameRank},
                                          {1, 2, 2, kSameNode},
                                          {2, 4, 4, kOtherNode},
                                          {3, 2, 4, kOwnReceive},
                                          {4, 3, 3, kOtherNode},
                                          {5, 5, 5, kUnchanged},
                                          {6, 6, 0, kUnchanged},
                                          {7, 3, 3, kOtherNode}}));
}

TEST(MovePlan, HoldersShareReceiversEvenly) {
  // Expert 0 is on ranks 0 and 1; six further ranks of other nodes want it.
  const ExpertShape wide{.experts = 7, .redundant = 9, .ranks = 8};
  const LayerSlots current{0, 1, 0, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2};
  const LayerSlots next{0, 1, 0, 2, 0, 4, 0, 6, 0, 3, 0, 5, 0, 6, 0, 2};
  std::map<int32_t, int32_t> sends;
  for (const SlotMove& move : MovesOf(wide, current, next)) {
    if (move.expert == 0 && Travels(move.kind)) ++sends[move.source];
  }
  EXPECT_EQ(sends, (std::map<int32_t, int32_t>{{0, 3}, {2, 3}}));
}

TEST(MovePlan, LayersThatStayTakeNoRound) {
  const ExpertShape shape{.experts = 4, .ranks = 2, .ranks_per_node = 2};
  const LayerSlots a{0, 1, 2, 3}, b{0, 2, 1, 3};
  const MoveLimits limits{.slot_bytes = {10, 10, 10}, .buffer_bytes = 10, .step_bytes = 4};
  const auto rounds = RoundsOf(shape, {a, a, a}, {b, a, b}, limits);
  ASSERT_TRUE(rounds);
  ASSERT_EQ(rounds->size(), 2U);  // the buffer holds one expert
  EXPECT_EQ((*rounds)[0].layers, std::vector<int32_t>{0});
  EXPECT_EQ((*rounds)[1].layers, std::vector<int32_t>{2});
  // 4 + 4 + 2 bytes of each of the two experts, in both directions at once.
  ASSERT_EQ((*rounds)[0].steps.size(), 3U);
  for (const auto& pieces : (*rounds)[0].steps) EXPECT_EQ(pieces.size(), 2U);
  EXPECT_TRUE(RoundsOf(shape, {a, a, a}, {a, a, a}, limits)->empty());
}

TEST(MovePlan, SaysHowLargeTheBufferMustBe) {
  const ExpertShape shape{.experts = 4, .ranks = 2, .ranks_per_node = 2};
  const MoveLimits limits{.slot_bytes = {10}, .buffer_bytes = 19, .step_bytes = 100};
  const auto rounds = RoundsOf(shape, {{0, 1, 2, 3}}, {{2, 3, 0, 1}}, limits);
  ASSERT_FALSE(rounds);
  EXPECT_NE(rounds.error().message.find("layer 0 needs a buffer of 20 bytes on a rank; it has 19"),
            std::string::npos);
}

}  // namespace
}  // namespace braid
