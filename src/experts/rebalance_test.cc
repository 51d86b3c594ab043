// All ranks of a group in one thread: what a slot holds is always whole, and what all of them agree
// on. The messages are handed over by the test, which may lose, repeat or damage them.
#include "experts/rebalance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSlotBytes = 20;
constexpr ExpertShape kShape{.experts = 4, .redundant = 0, .ranks = 2, .ranks_per_node = 1};
const LayerSlots kBefore{0, 1, 2, 3}, kAfter{2, 1, 0, 3};

using Bytes = std::vector<std::byte>;

Bytes WeightsOf(int32_t layer, int32_t expert) {
  Bytes bytes(kSlotBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(layer * 100 + expert * 10 + static_cast<int32_t>(i) % 7);
  }
  return bytes;
}

class Group {
 public:
  explicit Group(MoveLimits limits = {.slot_bytes = {kSlotBytes, kSlotBytes},
                                      .buffer_bytes = 1000,
                                      .step_bytes = 8},
                 int32_t round_steps_max = 20, ExpertShape shape = kShape,
                 const std::vector<LayerSlots>& placement = {kBefore, kBefore})
      : shape_(shape) {
    for (int32_t rank = 0; rank < shape.ranks; ++rank) {
      ranks.emplace_back(shape, rank, placement, limits, round_steps_max);
    }
    for (const LayerSlots& slots : placement) {
      const auto layer = static_cast<int32_t>(live.size());
      live.emplace_back();
      for (const int32_t expert : slots) live.back().push_back(WeightsOf(layer, expert));
    }
    buffers.assign(live.size(), std::vector<Bytes>(live[0].size(), Bytes(kSlotBytes)));
  }

  std::vector<Status> Begin(const std::vector<LayerSlots>& next) {
    std::vector<Status> out;
    for (Rebalance& rank : ranks) out.push_back(rank.Begin(next));
    return out;
  }

  // A step of all ranks; what they changed.
  std::vector<MoveChange> Step() {
    for (Rebalance& rank : ranks) {
      const MoveStep work = rank.NextStep();
      for (const SlotCopy& copy : work.stage)
        BufferOf(copy.layer, copy.to) = Live(copy.layer, copy.from);
      int64_t sent = 0;
      for (const MovePiece& piece : work.sends) {
        const Bytes& from = Live(piece.layer, piece.source);
        Bytes bytes(from.begin() + piece.begin, from.begin() + piece.end);
        PieceHeader header = rank.HeaderOf(piece, bytes);
        sent += std::ssize(bytes);
        if (on_the_way) on_the_way(header, bytes);
        if (!bytes.empty()) Arrive(header, bytes);
      }
      rank.EndStep();
      EXPECT_LE(sent, 8);
    }
    std::vector<MoveVote> votes;
    for (const Rebalance& rank : ranks) votes.push_back(rank.vote());
    std::vector<MoveChange> changes;
    for (Rebalance& rank : ranks) changes.push_back(rank.Apply(votes));
    for (const MoveChange& change : changes) {
      EXPECT_EQ(change.kind, changes[0].kind) << "a rank swaps alone";
      for (const SlotCopy& copy : change.copies) {
        Live(copy.layer, copy.to) = BufferOf(copy.layer, copy.from);
      }
    }
    return changes;
  }
  bool Arrive(const PieceHeader& header, const Bytes& bytes) {
    Rebalance& to = ranks[static_cast<size_t>(shape_.RankOf(header.slot))];
    if (!to.Receive(header, bytes)) return false;
    Bytes& buffer = BufferOf(header.layer, header.slot);
    std::copy(bytes.begin(), bytes.end(), buffer.begin() + header.begin);
    return true;
  }

  // Steps until nothing moves; how the rounds ended.
  std::vector<MoveChange::Kind> Run() {
    std::vector<MoveChange::Kind> ends;
    for (int step = 0; step < 200 && ranks[0].moving(); ++step) {
      const MoveChange change = Step()[0];
      if (change.kind != MoveChange::kNone) ends.push_back(change.kind);
    }
    for (const Rebalance& rank : ranks) EXPECT_FALSE(rank.moving());
    return ends;
  }
  void ExpectPlacement(const std::vector<LayerSlots>& placement) {
    for (const Rebalance& rank : ranks) EXPECT_EQ(rank.placement(), placement);
    for (size_t layer = 0; layer < placement.size(); ++layer) {
      for (size_t slot = 0; slot < placement[layer].size(); ++slot) {
        EXPECT_EQ(live[layer][slot], WeightsOf(static_cast<int32_t>(layer), placement[layer][slot]))
            << "layer " << layer << ", slot " << slot;
      }
    }
  }
  Bytes& Live(int32_t layer, int32_t slot) {
    return live[static_cast<size_t>(layer)][static_cast<size_t>(slot)];
  }
  Bytes& BufferOf(int32_t layer, int32_t slot) {
    return buffers[static_cast<size_t>(layer)][static_cast<size_t>(slot)];
  }

  std::vector<Rebalance> ranks;
  std::vector<std::vector<Bytes>> live, buffers;  // by layer and slot
  std::function<void(PieceHeader&, Bytes&)> on_the_way;

 private:
  const ExpertShape shape_;
};

TEST(Rebalance, WeightsGoWhereThePlacementSays) {
  Group group;
  for (const Status& status : group.Begin({kAfter, kBefore})) ASSERT_TRUE(status);
  EXPECT_THAT(group.Run(), ElementsAre(MoveChange::kSwap));
  group.ExpectPlacement({kAfter, kBefore});
  EXPECT_EQ(group.ranks[0].epoch(), 1);
  // And back, with the other layer, of which slots of a rank change places.
  group.Begin({kBefore, LayerSlots{1, 0, 3, 2}});
  group.Run();
  group.ExpectPlacement({kBefore, LayerSlots{1, 0, 3, 2}});
}

TEST(Rebalance, AnExpertThatARankReceivesTwiceTravelsOnce) {
  constexpr ExpertShape kWide{.experts = 4, .redundant = 2, .ranks = 2, .ranks_per_node = 1};
  const LayerSlots before{0, 1, 0, 2, 3, 2}, after{3, 3, 0, 2, 1, 2};
  Group group({.slot_bytes = {kSlotBytes}, .buffer_bytes = 1000, .step_bytes = 8}, 20, kWide,
              {before});
  int64_t travelled = 0;
  group.on_the_way = [&](PieceHeader&, Bytes& bytes) { travelled += std::ssize(bytes); };
  group.Begin({after});
  group.Run();
  group.ExpectPlacement({after});
  EXPECT_EQ(travelled, 2 * kSlotBytes);
}

TEST(Rebalance, NothingToMoveIsNoMove) {
  Group group;
  group.Begin({kBefore, kBefore});
  EXPECT_FALSE(group.ranks[0].moving());
  EXPECT_EQ(group.ranks[0].vote(), MoveVote::kBusy);
  EXPECT_EQ(group.Step()[0].kind, MoveChange::kNone);
}

TEST(Rebalance, ABufferThatHoldsOneLayerMakesARoundOfEach) {
  Group group(
      {.slot_bytes = {kSlotBytes, kSlotBytes}, .buffer_bytes = kSlotBytes, .step_bytes = 8});
  for (const Status& status : group.Begin({kAfter, kAfter})) ASSERT_TRUE(status);
  EXPECT_THAT(group.Run(), ElementsAre(MoveChange::kSwap, MoveChange::kSwap));
  group.ExpectPlacement({kAfter, kAfter});
  EXPECT_EQ(group.ranks[0].epoch(), 2);
  Group small({.slot_bytes = {kSlotBytes, kSlotBytes}, .buffer_bytes = 5, .step_bytes = 8});
  for (const Status& status : small.Begin({kAfter, kAfter})) EXPECT_FALSE(status);
}

// Nothing travels, and yet a rank is not ready before it has made its copies.
TEST(Rebalance, ARankIsReadyWhenItHasDoneItsPart) {
  Group group;
  Rebalance& rank = group.ranks[0];
  ASSERT_TRUE(rank.Begin({kBefore, LayerSlots{1, 0, 2, 3}}));
  EXPECT_EQ(rank.vote(), MoveVote::kBusy);
  const MoveStep work = rank.NextStep();
  EXPECT_TRUE(work.sends.empty());
  ASSERT_EQ(work.stage.size(), 2u);
  EXPECT_EQ(work.stage[0].layer, 1);
  EXPECT_EQ(work.stage[0].from, 1);
  EXPECT_EQ(work.stage[0].to, 0);
  EXPECT_EQ(rank.vote(), MoveVote::kBusy);
  rank.EndStep();
  EXPECT_EQ(rank.vote(), MoveVote::kReady);
  EXPECT_TRUE(rank.NextStep().stage.empty()) << "copies are made once";
  // The other rank has nothing to copy.
  ASSERT_TRUE(group.ranks[1].Begin({kBefore, LayerSlots{1, 0, 2, 3}}));
  EXPECT_TRUE(group.ranks[1].NextStep().stage.empty());
}

TEST(Rebalance, EachRoundMayTakeAllOfItsSteps) {
  Group group({.slot_bytes = {kSlotBytes, kSlotBytes}, .buffer_bytes = 1000, .step_bytes = 8}, 3);
  group.Begin({kAfter, kAfter});
  EXPECT_EQ(group.ranks[0].attempt(), 1);
  EXPECT_THAT(group.Run(), ElementsAre(MoveChange::kSwap, MoveChange::kSwap));
  EXPECT_EQ(group.ranks[0].attempt(), 2);
  group.ExpectPlacement({kAfter, kAfter});
  EXPECT_TRUE(group.ranks[0].NextStep().sends.empty()) << "nothing moves";
}

TEST(Rebalance, APlacementThatLacksAnExpertIsRefused) {
  Group group;
  for (const Status& status : group.Begin({LayerSlots{0, 1, 2, 2}, kBefore})) EXPECT_FALSE(status);
  EXPECT_FALSE(group.ranks[0].moving());
}

TEST(Rebalance, WhenOneRankFailsAllKeepWhatTheyHave) {
  for (const size_t fails : {0u, 1u}) {
    Group group;
    group.Begin({kAfter, kBefore});
    group.Step();
    group.ranks[fails].Fail("no memory");
    group.ranks[fails].Fail("and more");
    EXPECT_EQ(group.ranks[fails].vote(), MoveVote::kFailed);
    EXPECT_THAT(group.Run(), ElementsAre(MoveChange::kDrop));
    EXPECT_EQ(group.ranks[fails].failure(), "no memory");
    group.ExpectPlacement({kBefore, kBefore});
    EXPECT_EQ(group.ranks[0].epoch(), 0);
    // The next attempt knows nothing of it.
    group.Begin({kAfter, kBefore});
    EXPECT_THAT(group.Run(), ElementsAre(MoveChange::kSwap));
    group.ExpectPlacement({kAfter, kBefore});
  }
}

// Two groups that hold all experts each.
TEST(Rebalance, TheVotesOfAllGroupsDecide) {
  using enum MoveVote;
  Group group;
  Rebalance& rank = group.ranks[0];
  const auto apply = [&](std::array<MoveVote, 4> votes) { return rank.Apply(votes).kind; };
  ASSERT_TRUE(rank.Begin({kAfter, kBefore}));
  EXPECT_EQ(apply({kReady, kReady, kReady, kBusy}), MoveChange::kNone);
  EXPECT_EQ(apply({kReady, kReady, kReady, kFailed}), MoveChange::kDrop);
  ASSERT_TRUE(rank.Begin({kAfter, kBefore}));
  EXPECT_EQ(apply({kBusy, kReady, kReady, kReady}), MoveChange::kNone);
  EXPECT_EQ(apply({kReady, kReady, kReady, kReady}), MoveChange::kSwap);
}

TEST(Rebalance, ADamagedPieceDropsTheRound) {
  Group group;
  group.on_the_way = [](PieceHeader&, Bytes& bytes) { bytes.back() ^= std::byte{1}; };
  group.Begin({kAfter, kBefore});
  EXPECT_THAT(group.Run(), ElementsAre(MoveChange::kDrop));
  EXPECT_THAT(group.ranks[0].failure(), HasSubstr("wrong checksum"));
  group.ExpectPlacement({kBefore, kBefore});
}

// Not a piece of a round that is over, which would be waited for until the round has lasted too
// long.
TEST(Rebalance, APieceWithADamagedAttemptDropsTheRound) {
  Group group;
  group.on_the_way = [](PieceHeader& header, Bytes&) { header.attempt ^= 4; };
  group.Begin({kAfter, kBefore});
  EXPECT_EQ(group.Step()[0].kind, MoveChange::kDrop);
  EXPECT_THAT(group.ranks[0].failure(), HasSubstr("wrong checksum"));
  group.ExpectPlacement({kBefore, kBefore});
}

TEST(Rebalance, EveryFieldOfAPieceIsInItsChecksum) {
  const PieceHeader header{.attempt = 1, .layer = 2, .slot = 3, .expert = 4, .begin = 8, .end = 20};
  const Bytes bytes = WeightsOf(0, 1);
  const uint64_t sum = ChecksumOf(header, bytes);
  const auto other = [&](auto change) {
    PieceHeader changed = header;
    change(changed);
    return ChecksumOf(changed, bytes);
  };
  EXPECT_NE(sum, other([](PieceHeader& h) { h.attempt = 2; }));
  EXPECT_NE(sum, other([](PieceHeader& h) { h.layer = 3; }));
  EXPECT_NE(sum, other([](PieceHeader& h) { h.slot = 2; }));
  EXPECT_NE(sum, other([](PieceHeader& h) { h.expert = 5; }));
  EXPECT_NE(sum, other([](PieceHeader& h) { h.begin = 0; }));
  EXPECT_NE(sum, other([](PieceHeader& h) { h.end = 24; }));
  for (size_t i = 0; i < bytes.size(); ++i) {
    Bytes changed = bytes;
    changed[i] ^= std::byte{16};
    EXPECT_NE(sum, ChecksumOf(header, changed)) << i;
  }
}

TEST(Rebalance, APieceCountsOnceAndOnlyInItsAttempt) {
  Group group;
  std::vector<std::pair<PieceHeader, Bytes>> seen;
  group.on_the_way = [&](PieceHeader& header, Bytes& bytes) { seen.emplace_back(header, bytes); };
  group.Begin({kAfter, kBefore});
  group.Step();
  ASSERT_FALSE(seen.empty());
  EXPECT_FALSE(group.Arrive(seen[0].first, seen[0].second)) << "it came before";
  // What is another piece in one respect is none that a rank waits for.
  const PieceHeader came = seen[0].first;
  constexpr MovePiece kOthers[] = {{.layer = 1, .begin = 8, .end = 16},
                                   {.slot = 1, .begin = 8, .end = 16},
                                   {.begin = 9, .end = 16},
                                   {.begin = 8, .end = 15}};
  for (const MovePiece& other : kOthers) {
    PieceHeader header = came;
    header.layer += other.layer;
    header.slot ^= other.slot;
    header.begin = other.begin;
    header.end = other.end;
    header.checksum = ChecksumOf(header, seen[0].second);
    EXPECT_FALSE(group.Arrive(header, seen[0].second));
  }
  for (const Rebalance& rank : group.ranks) EXPECT_THAT(rank.failure(), IsEmpty());
  group.ranks[1].Fail("no memory");
  group.Run();
  const auto late = seen[0];
  EXPECT_FALSE(group.Arrive(late.first, late.second)) << "nothing moves";
  group.Begin({kAfter, kBefore});
  EXPECT_FALSE(group.Arrive(late.first, late.second)) << "another attempt has begun";
  EXPECT_THAT(group.Run(), ElementsAre(MoveChange::kSwap));
  group.ExpectPlacement({kAfter, kBefore});
}

TEST(Rebalance, TheWrongExpertDropsTheRound) {
  Group group;
  group.on_the_way = [](PieceHeader& header, Bytes& bytes) {
    header.expert = header.expert == 0 ? 1 : 0;
    header.checksum = ChecksumOf(header, bytes);
  };
  group.Begin({kAfter, kBefore});
  EXPECT_THAT(group.Run(), ElementsAre(MoveChange::kDrop));
  EXPECT_THAT(group.ranks[0].failure(), HasSubstr("expert 0 arrived for slot 0 of layer 0"));
}

TEST(Rebalance, NothingDamagedIsWrittenIntoABuffer) {
  Group group;
  group.Begin({kAfter, kBefore});
  const MovePiece piece = group.ranks[1].NextStep().sends.at(0);
  const Bytes& from = group.live[0][static_cast<size_t>(piece.source)];
  const Bytes bytes(from.begin() + piece.begin, from.begin() + piece.end);
  PieceHeader header = group.ranks[1].HeaderOf(piece, bytes);
  ++header.checksum;
  EXPECT_FALSE(group.ranks[0].Receive(header, bytes));
  EXPECT_EQ(group.ranks[0].vote(), MoveVote::kFailed);
}

TEST(Rebalance, ARoundThatLosesAPieceIsDroppedAfterItsSteps) {
  Group group({.slot_bytes = {kSlotBytes, kSlotBytes}, .buffer_bytes = 1000, .step_bytes = 8}, 6);
  bool lost = false;
  group.on_the_way = [&](PieceHeader&, Bytes& bytes) {
    if (!std::exchange(lost, true)) bytes.clear();
  };
  group.Begin({kAfter, kBefore});
  for (int step = 0; step < 5; ++step) EXPECT_EQ(group.Step()[0].kind, MoveChange::kNone) << step;
  EXPECT_EQ(group.Step()[0].kind, MoveChange::kDrop);
  group.ExpectPlacement({kBefore, kBefore});
  EXPECT_THAT(group.ranks[0].failure(), IsEmpty()) << "nothing failed but the network";
}

}  // namespace
}  // namespace braid
