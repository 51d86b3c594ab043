// Bounds of the rooms of both sides: how many, and for how long. What they promise whatever happens
// is explored in tests/handoff.
#include <gmock/gmock.h>

#include <string>
#include <variant>
#include <vector>

#include "handoff/rooms/decode_rooms.h"
#include "handoff/rooms/prefill_rooms.h"

namespace braid::handoff {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SessionId kSession(5);
constexpr PartKey kFirst{GroupId(0), 0}, kSecond{GroupId(0), 1};

// Of one message.
template <class Kind>
std::vector<RoomId> RoomsOf(const std::vector<std::pair<SessionId, Body>>& sent) {
  std::vector<RoomId> rooms;
  for (const auto& [session, body] : sent) {
    EXPECT_EQ(session, kSession);
    if (const auto* message = std::get_if<Kind>(&body)) rooms.push_back(message->room);
  }
  return rooms;
}

TEST(DecodeRooms, AreOpenedAsFarAsTheOldestIsRemembered) {
  DecodeRooms rooms({});
  DecodeRooms::Effects effects;
  const auto open = [&] {
    return rooms.Open(kSession, {.begin = 64, .parts = {kFirst}, .request = "r"}, 1, effects);
  };
  for (int64_t i = 0; i < kOpenSpanMax; ++i) ASSERT_EQ(open(), RoomId(i));
  const Ask last = std::get<Ask>(effects.send.back().second);
  EXPECT_EQ(last.room, RoomId(kOpenSpanMax - 1));
  EXPECT_EQ(last.open_from, RoomId(0));
  EXPECT_EQ(last.begin, 64);
  EXPECT_EQ(last.request, "r");
  effects = {};
  EXPECT_FALSE(open());
  EXPECT_THAT(effects.send, IsEmpty());
  rooms.Abort(RoomId(1), effects);
  EXPECT_FALSE(open()) << "the oldest is open";
  rooms.Abort(RoomId(0), effects);
  effects = {};
  EXPECT_EQ(open(), RoomId(kOpenSpanMax)) << "no number is used twice";
  EXPECT_EQ(std::get<Ask>(effects.send[0].second).open_from, RoomId(2));
}

TEST(DecodeRooms, EndWhenTheirTimeIsOver) {
  DecodeRooms rooms({.progress_us = 100, .room_us = 1000});
  DecodeRooms::Effects effects;
  const auto late_at = [&](int64_t now_us) {
    effects = {};
    rooms.Tick(now_us, effects);
    std::vector<std::string> why;
    for (const Outcome& outcome : effects.over) {
      why.push_back(outcome.failure.error);
      EXPECT_EQ(outcome.failure.cause, Cause::kEngine);
      EXPECT_THAT(RoomsOf<Cancel>(effects.send), ElementsAre(outcome.room));
    }
    return why;
  };
  const auto open = [&](int64_t now_us) {
    return *rooms.Open(kSession, {.begin = 0, .parts = {kFirst, kSecond}, .request = {}}, now_us,
                       effects);
  };
  open(5);
  EXPECT_THAT(late_at(1004), IsEmpty()) << "a first page may take long";
  EXPECT_THAT(late_at(1005), ElementsAre("the prompt was not computed in time"));
  const RoomId room = open(2000);
  ASSERT_TRUE(rooms.BeginWrite(kSession, {room, kFirst}, 2100));
  rooms.EndWrite(room, kFirst, {}, effects);
  rooms.On(kSession, Last{room, 2, "a token"}, 2100, effects);
  EXPECT_THAT(late_at(2199), IsEmpty());
  EXPECT_THAT(late_at(2200), ElementsAre("no page has come for too long"));
  EXPECT_THAT(rooms.rooms(), IsEmpty());
}

TEST(DecodeRooms, AreNotLateWhileAPromptIsComputedOrOthersPagesCome) {
  DecodeRooms rooms({.progress_us = 100, .room_us = 10'000});
  DecodeRooms::Effects effects;
  std::vector<PartKey> parts;
  for (int32_t i = 0; i < 5; ++i) parts.push_back({GroupId(0), i});
  const auto open = [&] {
    return *rooms.Open(kSession, {.begin = 0, .parts = parts, .request = {}}, 1, effects);
  };
  const auto come = [&](RoomId room, const PartKey& part, int64_t now_us) {
    ASSERT_TRUE(rooms.BeginWrite(kSession, {room, part}, now_us));
    rooms.EndWrite(room, part, {}, effects);
  };
  const RoomId first = open(), second = open();
  come(second, parts[0], 2);
  int64_t now_us = 1000;
  rooms.Tick(now_us, effects);
  EXPECT_EQ(rooms.rooms().size(), 2u) << "a chunk of a prompt may take long";
  for (const RoomId room : {first, second}) {
    rooms.On(kSession, Last{room, 5, "a token"}, now_us, effects);
  }
  for (size_t i = 0; i < 4; ++i) {
    now_us += 99;
    rooms.Tick(now_us, effects);
    EXPECT_EQ(rooms.rooms().size(), 2u) << "the second's pages come behind the first's";
    come(first, parts[i], now_us);
  }
  rooms.Tick(now_us + 99, effects);
  EXPECT_EQ(rooms.rooms().size(), 2u);
  rooms.Tick(now_us + 100, effects);
  EXPECT_THAT(rooms.rooms(), IsEmpty());
}

TEST(PrefillRooms, AreTakenAsFarAsADecodeEngineRemembers) {
  PrefillRooms rooms({});
  PrefillRooms::Effects effects;
  rooms.Joined(kSession);
  const auto ask = [&](int64_t room, int64_t open_from) {
    effects = {};
    rooms.On(kSession, Ask{.room = RoomId(room), .open_from = RoomId(open_from)}, 1, effects);
    return effects.submit.size();
  };
  EXPECT_EQ(ask(kOpenSpanMax - 1, 0), 1u);
  EXPECT_EQ(ask(kOpenSpanMax, 0), 0u);
  EXPECT_THAT(RoomsOf<Refusal>(effects.send), ElementsAre(RoomId(kOpenSpanMax)));
  EXPECT_EQ(std::get<Refusal>(effects.send[0].second).reason, "too many rooms are open");
  EXPECT_EQ(ask(kOpenSpanMax, 1), 1u);
  EXPECT_EQ(ask(0, 0), 0u) << "it is over";
  EXPECT_THAT(effects.send, IsEmpty());
  // Cancelled before they are asked for: as many are remembered as may still come.
  EXPECT_EQ(rooms.remembered(), 0u);
  for (const int64_t room : {int64_t{0}, int64_t{1}, kOpenSpanMax - 2, kOpenSpanMax + 1}) {
    rooms.On(kSession, Cancel{RoomId(room)}, effects);
  }
  EXPECT_EQ(rooms.remembered(), 2u) << "not 0, nor the last";
  EXPECT_EQ(ask(1, 1), 0u);
  EXPECT_EQ(ask(2, 2), 1u);
  EXPECT_EQ(rooms.remembered(), 1u);
  PrefillRooms::Effects none;
  rooms.On(SessionId(6), Ask{.room = RoomId(9), .open_from = RoomId(9)}, 1, none);
  EXPECT_TRUE(none.submit.empty()) << "a session that has not joined";
}

TEST(PrefillRooms, SayWhyTheirTimeIsOver) {
  for (const bool handed : {false, true}) {
    PrefillRooms rooms({.room_us = 1000, .progress_us = 100});
    PrefillRooms::Effects effects;
    const RoomKey key{kSession, RoomId(3)};
    rooms.Joined(kSession);
    rooms.On(kSession, Ask{.room = key.room, .open_from = RoomId(0)}, 1, effects);
    if (handed) rooms.Hand(key, 1, "a token", 500, effects);
    effects = {};
    rooms.Tick(handed ? 599 : 1000, effects);
    EXPECT_TRUE(rooms.Open(key));
    EXPECT_THAT(effects.send, IsEmpty());
    rooms.Tick(handed ? 600 : 1001, effects);
    EXPECT_FALSE(rooms.Open(key));
    ASSERT_EQ(effects.send.size(), 1u);
    EXPECT_EQ(std::get<Refusal>(effects.send[0].second).reason,
              handed ? "the decode engine did not take the pages in time"
                     : "the prompt was not computed in time");
  }
}

// The prompt was computed while nobody wanted it any more, or after its connection had ended.
TEST(PrefillRooms, GivePagesBackAtOnceThatNobodyWants) {
  for (const bool lost : {false, true}) {
    PrefillRooms rooms({});
    PrefillRooms::Effects effects;
    const RoomKey key{kSession, RoomId(3)};
    rooms.Joined(kSession);
    rooms.On(kSession, Ask{.room = key.room, .open_from = RoomId(0)}, 1, effects);
    lost ? rooms.Lost(kSession, effects) : rooms.On(kSession, Cancel{key.room}, effects);
    EXPECT_THAT(effects.abort, ElementsAre(key));
    effects = {};
    EXPECT_FALSE(rooms.Open(key));
    rooms.Hand(key, 1, "a token", 2, effects);
    EXPECT_THAT(effects.send, IsEmpty());
    ASSERT_EQ(effects.release.size(), 1u);
    EXPECT_EQ(effects.release[0].first, key);
    EXPECT_NE(effects.release[0].second, "");
    EXPECT_THAT(rooms.rooms(), IsEmpty());
  }
}

}  // namespace
}  // namespace braid::handoff
