// Sources and kinds of moves by example, and what every plan of moves must keep.
#include "experts/move_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/rng.h"
#include "base/system/thread_time.h"

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

// The ranks of a node that has the expert get it there; the others get it from all that have it.
TEST(MovePlan, HoldersOfANodeShareItsReceiversEvenly) {
  const ExpertShape shape{.experts = 12, .redundant = 12, .ranks = 12, .ranks_per_node = 6};
  // On ranks 0 and 1 of the first node, rank 1 twice, and on none of the second.
  const LayerSlots current{0,  1,  0, 0, 2, 3, 4, 5, 6, 7, 8, 9,
                           10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  LayerSlots next = current;
  for (size_t rank = 2; rank < 11; ++rank) next[2 * rank + 1] = 0;
  std::map<int32_t, std::vector<int32_t>> near, far;
  for (const SlotMove& move : MovesOf(shape, current, next)) {
    if (move.kind == MoveKind::kUnchanged) continue;
    EXPECT_EQ(move.expert, 0);
    EXPECT_EQ(move.kind == MoveKind::kSameNode, move.slot < 12);
    (move.kind == MoveKind::kSameNode ? near : far)[move.source].push_back(move.slot);
  }
  EXPECT_EQ(near, (std::map<int32_t, std::vector<int32_t>>{{0, {5, 7}}, {2, {9, 11}}}));
  EXPECT_EQ(far, (std::map<int32_t, std::vector<int32_t>>{{0, {13, 15, 17}}, {2, {19, 21}}}));
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
  EXPECT_EQ((*rounds)[1].steps.size(), 3U) << "a round begins with empty steps";
  for (const auto& pieces : (*rounds)[1].steps) EXPECT_EQ(pieces.size(), 2U);
  EXPECT_EQ((*rounds)[1].steps[0][0],
            (MovePiece{.layer = 2, .slot = 1, .source = 2, .begin = 0, .end = 4}));
  EXPECT_EQ((*rounds)[1].steps[2][1],
            (MovePiece{.layer = 2, .slot = 2, .source = 1, .begin = 8, .end = 10}));
  EXPECT_TRUE(RoundsOf(shape, {a, a, a}, {a, a, a}, limits)->empty());
}

// As many layers change in a round as a rank may overwrite between two steps.
TEST(MovePlan, LayersThatFitChangeInOneRound) {
  const ExpertShape shape{.experts = 4, .ranks = 2, .ranks_per_node = 2};
  const LayerSlots a{0, 1, 2, 3}, b{0, 2, 1, 3};
  const auto layers = [&](int64_t buffer_bytes, int64_t step_bytes) {
    const auto rounds = RoundsOf(
        shape, {a, a, a}, {b, b, b},
        {.slot_bytes = {10, 12, 10}, .buffer_bytes = buffer_bytes, .step_bytes = step_bytes});
    CHECK(rounds, "{}", rounds.error().message);
    std::vector<std::vector<int32_t>> of_rounds;
    for (const MoveRound& round : *rounds) of_rounds.push_back(round.layers);
    return of_rounds;
  };
  using Layers = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(layers(100, 32), (Layers{{0, 1, 2}}));
  EXPECT_EQ(layers(32, 100), (Layers{{0, 1, 2}}));
  EXPECT_EQ(layers(100, 31), (Layers{{0, 1}, {2}}));
  EXPECT_EQ(layers(22, 100), (Layers{{0, 1}, {2}}));
  EXPECT_EQ(layers(21, 100), (Layers{{0}, {1}, {2}}));
  EXPECT_EQ(layers(100, 5), (Layers{{0}, {1}, {2}}));
  // Either rank may be the one that is full.
  for (const LayerSlots& c : {LayerSlots{1, 0, 2, 3}, LayerSlots{0, 1, 3, 2}}) {
    const auto rounds =
        RoundsOf(shape, {a, a, a}, {c, c, c},
                 {.slot_bytes = {10, 10, 10}, .buffer_bytes = 100, .step_bytes = 40});
    ASSERT_TRUE(rounds);
    EXPECT_EQ(rounds->size(), 2U);
  }
}

TEST(MovePlan, ARankNeitherSendsNorReceivesMoreInAStepThanItMay) {
  const ExpertShape shape{.experts = 6, .ranks = 3};
  // Rank 0 receives from both others, and then sends to both.
  const auto rounds = RoundsOf(shape, {{0, 1, 2, 3, 4, 5}}, {{2, 4, 1, 3, 0, 5}},
                               {.slot_bytes = {10}, .buffer_bytes = 20, .step_bytes = 10});
  ASSERT_TRUE(rounds);
  ASSERT_EQ(rounds->size(), 1U);
  std::vector<std::vector<int32_t>> slots;
  for (const auto& step : (*rounds)[0].steps) {
    slots.emplace_back();
    for (const MovePiece& piece : step) slots.back().push_back(piece.slot);
  }
  EXPECT_EQ(slots, (std::vector<std::vector<int32_t>>{{0, 2}, {1, 4}}));
}

// What is left of a slot travels in the first step that has room for it.
TEST(MovePlan, TheLastPieceOfASlotFillsAStepThatHasRoom) {
  const ExpertShape shape{.experts = 4, .ranks = 2, .ranks_per_node = 2};
  const auto rounds = RoundsOf(shape, {{0, 1, 2, 3}}, {{2, 3, 1, 0}},
                               {.slot_bytes = {10}, .buffer_bytes = 20, .step_bytes = 8});
  ASSERT_TRUE(rounds);
  ASSERT_EQ(rounds->size(), 1U);
  // Each rank receives 8 bytes, 2 and 2, and 8.
  std::vector<size_t> pieces;
  for (const auto& step : (*rounds)[0].steps) pieces.push_back(step.size());
  EXPECT_EQ(pieces, (std::vector<size_t>{2, 4, 2}));
}

std::vector<LayerSlots> Afters(const std::vector<MoveRound>& rounds) {
  std::vector<LayerSlots> afters;
  for (const MoveRound& round : rounds) afters.push_back(round.after.at(0));
  return afters;
}

TEST(MovePlan, SlotsThatNeedNotChangeTogetherChangeInSeveralRounds) {
  const ExpertShape shape{.experts = 6, .redundant = 2, .ranks = 2};
  const MoveLimits one{.slot_bytes = {10}, .buffer_bytes = 100, .step_bytes = 10};
  // 0 and 4 change places, and 1 and 5; 2 takes the place of a replica of 3 without more ado.
  const LayerSlots before{0, 1, 2, 3, 4, 5, 3, 3}, after{4, 5, 2, 3, 0, 1, 2, 3};
  const auto rounds = RoundsOf(shape, {before}, {after}, one);
  ASSERT_TRUE(rounds);
  EXPECT_EQ(Afters(*rounds),
            (std::vector<LayerSlots>{
                {4, 1, 2, 3, 0, 5, 3, 3}, {4, 5, 2, 3, 0, 1, 3, 3}, {4, 5, 2, 3, 0, 1, 2, 3}}));
  const MoveLimits two{.slot_bytes = {10}, .buffer_bytes = 100, .step_bytes = 29};
  const auto wider = RoundsOf(shape, {before}, {after}, two);
  ASSERT_TRUE(wider);
  EXPECT_EQ(Afters(*wider),
            (std::vector<LayerSlots>{{4, 5, 2, 3, 0, 1, 3, 3}, {4, 5, 2, 3, 0, 1, 2, 3}}));
  // A buffer of two slots bounds it as well.
  EXPECT_EQ(Afters(*RoundsOf(shape, {before}, {after},
                             {.slot_bytes = {10}, .buffer_bytes = 20, .step_bytes = 100})),
            Afters(*wider));
}

TEST(MovePlan, EveryRoundLeavesAPlacementAndChangesASlotOnce) {
  Rng rng(5);
  for (int turn = 0; turn < 2000; ++turn) {
    const auto ranks = static_cast<int32_t>(2 + rng.Below(4));
    ExpertShape shape{.experts = ranks * static_cast<int32_t>(1 + rng.Below(5)), .ranks = ranks};
    shape.redundant = ranks * static_cast<int32_t>(rng.Below(3));
    const auto draw = [&] {
      LayerSlots slots = InOrder(shape);
      for (int32_t s = shape.experts; s < shape.slots(); ++s) {
        slots[static_cast<size_t>(s)] = static_cast<int32_t>(rng.Below(shape.experts));
      }
      for (size_t i = slots.size(); i > 1; --i) {
        std::swap(slots[i - 1], slots[static_cast<size_t>(rng.Below(static_cast<int64_t>(i)))]);
      }
      return slots;
    };
    const std::vector<LayerSlots> before{draw(), draw()}, next{draw(), draw()};
    const MoveLimits limits{.slot_bytes = {10, 7},
                            .buffer_bytes = 10 * shape.slots_per_rank(),
                            .step_bytes = 1 + rng.Below(40)};
    const auto rounds = RoundsOf(shape, before, next, limits);
    ASSERT_TRUE(rounds);
    std::vector<LayerSlots> now = before;
    for (const MoveRound& round : *rounds) {
      for (size_t i = 0; i < round.layers.size(); ++i) {
        const auto layer = static_cast<size_t>(round.layers[i]);
        ASSERT_TRUE(CheckSlots(shape, round.after[i]));
        EXPECT_NE(now[layer], round.after[i]);
        for (size_t s = 0; s < now[layer].size(); ++s) {
          const int32_t expert = round.after[i][s];
          ASSERT_TRUE(expert == now[layer][s] || expert == next[layer][s]);
        }
        EXPECT_EQ(round.moves[i], MovesOf(shape, now[layer], round.after[i]));
        now[layer] = round.after[i];
      }
    }
    ASSERT_EQ(now, next);
  }
}

TEST(MovePlan, HeadersOfPiecesCountAsBytesOfTheirStep) {
  const ExpertShape shape{.experts = 4, .ranks = 2, .ranks_per_node = 2};
  const MoveLimits limits{
      .slot_bytes = {10}, .buffer_bytes = 20, .step_bytes = 9, .header_bytes = 3};
  const auto rounds = RoundsOf(shape, {{0, 1, 2, 3}}, {{2, 3, 1, 0}}, limits);
  ASSERT_TRUE(rounds);
  ASSERT_EQ(rounds->size(), 1U);
  int64_t bytes = 0;
  for (const auto& pieces : (*rounds)[0].steps) {
    int64_t from[2] = {};
    for (const MovePiece& piece : pieces) {
      bytes += piece.end - piece.begin;
      from[shape.RankOf(piece.source)] += piece.end - piece.begin + limits.header_bytes;
    }
    EXPECT_LE(std::max(from[0], from[1]), limits.step_bytes);
  }
  EXPECT_EQ(bytes, 4 * 10);
}

TEST(MovePlan, TakesNoLongerForAPieceOfMany) {
  const ExpertShape shape{.experts = 4, .ranks = 2, .ranks_per_node = 2};
  // The least of several runs.
  const auto time_of = [&](int64_t slot_bytes) {
    int64_t least = INT64_MAX;
    for (int run = 0; run < 5; ++run) {
      const int64_t start = ThreadCpuNs();
      EXPECT_TRUE(
          RoundsOf(shape, {{0, 1, 2, 3}}, {{2, 1, 0, 3}},
                   {.slot_bytes = {slot_bytes}, .buffer_bytes = slot_bytes, .step_bytes = 1}));
      least = std::min(least, ThreadCpuNs() - start);
    }
    return least;
  };
  constexpr int64_t kPieces = 2000, kTimes = 16;
  EXPECT_LT(time_of(kTimes * kPieces), kTimes * 5 * time_of(kPieces));
}

TEST(MovePlan, SaysHowLargeTheBufferMustBe) {
  const ExpertShape shape{.experts = 4, .ranks = 2, .ranks_per_node = 2};
  const MoveLimits limits{.slot_bytes = {10}, .buffer_bytes = 19, .step_bytes = 100};
  // Each takes the place of the next: no part of that leaves every expert somewhere.
  const auto rounds = RoundsOf(shape, {{0, 1, 2, 3}}, {{2, 3, 1, 0}}, limits);
  ASSERT_FALSE(rounds);
  EXPECT_NE(rounds.error().message.find("layer 0 needs a buffer of 20 bytes on a rank; it has 19"),
            std::string::npos);
}

}  // namespace
}  // namespace braid
