// Which mover gets which moves, and what becomes of them when the arena is lost.
#include "runtime/plan_moves.h"

#include <gmock/gmock.h>

#include <variant>

#include "scheduler/inbox.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct NotedMover final : Mover {
  void Attach(const Arena& to, const CacheGeometry& of) override {
    arena = to.data;
    pages = of.pages;
  }
  void Start(const PageMove& move, EventSink&) override { started.push_back(move.id.value); }
  void ReadAhead(const PagesAhead& pages_ahead) override {
    ahead.push_back(pages_ahead.request.value);
  }
  void Drain() override { ++drained; }

  std::byte* arena = nullptr;
  int32_t pages = 0;
  std::vector<int64_t> started, ahead;
  int drained = 0;
};

class PlanMovesTest : public ::testing::Test {
 protected:
  static PageMove MoveTo(Place place, int64_t id, size_t parts = 0) {
    PageMove move{.id = MoveId(id), .place = place};
    move.parts.resize(parts);
    return move;
  }
  PlanMoves Made(Mover* peer, Mover* disk) {
    return PlanMoves({peer, disk}, {.data = &memory_}, {.groups = {}, .pages = 5});
  }

  std::byte memory_ = {};
  NotedMover peer_, disk_;
  Inbox inbox_;
};

TEST_F(PlanMovesTest, EachPlaceGetsItsOwn) {
  const PlanMoves moves = Made(&peer_, &disk_);
  for (const NotedMover* mover : {&peer_, &disk_}) {
    EXPECT_EQ(mover->arena, &memory_);
    EXPECT_EQ(mover->pages, 5);
  }
  Plan plan;
  plan.moves = {MoveTo(Place::kDisk, 1), MoveTo(Place::kPeer, 2), MoveTo(Place::kDisk, 3)};
  plan.ahead = {{.request = RequestId(8)}, {.request = RequestId(9)}};
  moves.Start(plan, inbox_);
  EXPECT_THAT(peer_.started, ElementsAre(2));
  EXPECT_THAT(disk_.started, ElementsAre(1, 3));
  EXPECT_THAT(disk_.ahead, ElementsAre(8, 9));
  EXPECT_THAT(peer_.ahead, IsEmpty()) << "it has nothing to read";
  moves.Drain();
  EXPECT_EQ(peer_.drained, 1);
  EXPECT_EQ(disk_.drained, 1);
}

TEST_F(PlanMovesTest, APlaceMayHaveNoMover) {
  const PlanMoves moves = Made(&peer_, nullptr);
  Plan plan;
  plan.moves = {MoveTo(Place::kPeer, 2)};
  plan.ahead = {{.request = RequestId(8)}};
  moves.Start(plan, inbox_);
  EXPECT_THAT(peer_.started, ElementsAre(2));
  moves.Drain();
  EXPECT_EQ(peer_.drained, 1);
  EXPECT_TRUE(inbox_.Take().empty());
}

TEST_F(PlanMovesTest, WithoutAnArenaEveryMoveEndsWithAllPartsLost) {
  Plan plan;
  plan.moves = {MoveTo(Place::kDisk, 1, 3), MoveTo(Place::kPeer, 2, 0)};
  PlanMoves::End(plan, Error{ErrorCode::kUnavailable, "it is gone"}, inbox_);
  const std::vector<Event> events = inbox_.Take();
  ASSERT_EQ(events.size(), 2u);
  const auto& first = std::get<PagesMoved>(events[0]);
  EXPECT_EQ(first.move, MoveId(1));
  EXPECT_EQ(first.error, "it is gone");
  EXPECT_THAT(first.lost, ElementsAre(0, 1, 2));
  EXPECT_EQ(std::get<PagesMoved>(events[1]).move, MoveId(2));
  EXPECT_THAT(std::get<PagesMoved>(events[1]).lost, IsEmpty());
}

}  // namespace
}  // namespace braid
