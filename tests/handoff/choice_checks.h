// What the choice of a prefill engine promises (handoff/rooms/prefill_choice.h), with the rooms
// that it hears of: for a test and for the test that planted mistakes are found. Time is the
// check's own.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "handoff/rooms/prefill_choice.h"

namespace braid::handoff {

class Choosing {
 public:
  explicit Choosing(int engines) {
    for (int i = 0; i < engines; ++i) Joins(i);
  }
  void Joins(int engine) { choice_.Joined(SessionId(engine)); }
  void Leaves(int engine) { choice_.Lost(SessionId(engine)); }

  // Asks whom the choice names; none: nobody.
  std::optional<RoomId> Ask(int except = -1) {
    const auto session = choice_.Choose(rooms_.rooms(), SessionId(except), now_us);
    if (!session) return {};
    const auto room =
        rooms_.Open(*session, {.begin = 0, .parts = {kPart}, .request = {}}, now_us, effects_);
    choice_.Opened(*session, *room);
    sessions_[*room] = *session;
    return room;
  }
  // The engine that a new room is at; -1: nobody may be asked.
  int64_t Next(int except = -1) {
    const auto room = Ask(except);
    return room ? sessions_.at(*room).value : -1;
  }
  int64_t EngineOf(RoomId room) const { return sessions_.at(room).value; }

  // A room ends; for how long its engine is left alone then.
  int64_t Refuse(RoomId room) {
    rooms_.On(sessions_.at(room), Refusal{room, "full"}, effects_);
    return Take();
  }
  int64_t NotFit(RoomId room) {
    rooms_.On(sessions_.at(room), Unfit{room, "too long"}, effects_);
    return Take();
  }
  int64_t Abort(RoomId room) {
    rooms_.Abort(room, effects_);
    return Take();
  }
  int64_t Finish(RoomId room) {
    (void)rooms_.BeginWrite(sessions_.at(room), {room, kPart}, now_us);
    rooms_.EndWrite(room, kPart, {}, effects_);
    rooms_.On(sessions_.at(room), Last{room, 1, "a token"}, now_us, effects_);
    return Take();
  }

  int64_t now_us = 0;

 private:
  static constexpr PartKey kPart{GroupId(0), 0};

  int64_t Take() {
    int64_t pause_us = 0;
    for (const Outcome& outcome : effects_.over) {
      pause_us += choice_.Ended(sessions_.at(outcome.room), outcome, now_us);
    }
    effects_ = {};
    return pause_us;
  }

  DecodeRooms rooms_{DecodeLimits{}};
  DecodeRooms::Effects effects_;
  PrefillChoice choice_;
  std::map<RoomId, SessionId> sessions_;
};

// The first promise that is broken; empty: none.
inline std::string BrokenByChoice() {
  constexpr int64_t kPauseUs = PrefillChoice::kPauseUs;
  Choosing two(2);
  const RoomId a = *two.Ask(), b = *two.Ask();
  const int64_t bad = two.EngineOf(a), good = two.EngineOf(b);
  if (bad == good) return "prompts are not shared";
  if (two.Refuse(a) != kPauseUs) return "an engine that refuses gets no pause";
  for (int i = 0; i < 3; ++i) {
    if (two.Next() != good) return "an engine that refuses is asked at once";
  }
  two.now_us += kPauseUs - 1;
  if (two.Next() != good) return "an engine that refuses is asked before its pause is over";
  two.now_us += 1;
  RoomId trial = *two.Ask();
  if (two.EngineOf(trial) != bad) return "an engine that refused is never tried";
  if (two.Next() != good) return "more than one prompt tries an engine";
  if (two.Refuse(trial) != 2 * kPauseUs) return "pauses do not grow";
  two.now_us += 2 * kPauseUs;
  trial = *two.Ask();
  if (two.Finish(trial) != 0) return "an engine that computes gets a pause";
  for (int i = 0; i < 2; ++i) {
    if (two.Next() != bad) return "an engine that has recovered is not as good as any";
  }
  for (const int except : {0, 1}) {
    if (two.Next(except) != 1 - except) return "the engine that refused a prompt is asked again";
  }

  Choosing one(1);
  if (one.Next(0) != -1) return "the only engine is asked again for what it refused";
  if (one.NotFit(*one.Ask()) != 0) return "a prompt that does not fit counts against the engine";
  if (one.Abort(*one.Ask()) != 0) return "an abort counts against the engine";
  const RoomId older[] = {*one.Ask(), *one.Ask(), *one.Ask()};
  if (one.Refuse(older[0]) != kPauseUs) return "an engine that fails gets no pause";
  if (one.Refuse(older[1]) != 0) return "rooms that fail together count several times";
  one.Finish(older[2]);
  if (one.Next() != -1) return "a room from before ends the pause";
  one.now_us += kPauseUs;
  trial = *one.Ask();
  if (one.Next() != -1) return "two prompts try an engine";
  one.Abort(trial);
  int64_t pause_us = 0;
  for (int i = 0; i < 40; ++i) {
    one.now_us += pause_us;
    const auto room = one.Ask();
    if (!room) return "an engine is not tried again";
    pause_us = one.Refuse(*room);
  }
  if (pause_us != kPauseUs << PrefillChoice::kDoublingsMax) return "pauses have no bound";
  one.Leaves(0);
  if (one.Next() != -1) return "an engine that has left is asked";
  one.Joins(0);
  return one.Next() == 0 ? "" : "an engine that came back is not asked";
}

}  // namespace braid::handoff
