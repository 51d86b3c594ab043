// What the prefill engine's rooms promise about time (handoff/rooms/prefill_rooms.h): for a test
// and for the test that planted mistakes are found. Time is the check's own.
#pragma once

#include <string>

#include "handoff/rooms/prefill_rooms.h"

namespace braid::handoff {

// The first promise that is broken; empty: none.
inline std::string BrokenByDeadlines() {
  constexpr SessionId kSession(1);
  constexpr RoomKey kFirst{kSession, RoomId(0)}, kSecond{kSession, RoomId(1)};
  constexpr int64_t kRoomUs = 1000, kProgressUs = 100, kHandedUs = 50;
  for (const bool stops : {true, false}) {
    PrefillRooms rooms({.room_us = kRoomUs, .progress_us = kProgressUs});
    PrefillRooms::Effects effects;
    rooms.Joined(kSession);
    for (const RoomKey& key : {kFirst, kSecond}) {
      rooms.On(kSession, Ask{.room = key.room, .open_from = RoomId(0)}, 0, effects);
      rooms.Hand(key, 1, "a token", kHandedUs, effects);
    }
    const auto open_at = [&](int64_t now_us) {
      rooms.Tick(now_us, effects);
      return rooms.Open(kFirst) && rooms.Open(kSecond);
    };
    // Parts of the first leave, and the second waits behind them.
    int64_t now_us = kHandedUs;
    while (now_us + kProgressUs < (stops ? kRoomUs / 2 : kRoomUs)) {
      now_us += kProgressUs - 1;
      if (!open_at(now_us)) return "a room is late although parts leave";
      rooms.Sent(kSession, now_us);
    }
    const int64_t late_us = stops ? now_us + kProgressUs : kRoomUs;
    if (!open_at(late_us - 1)) return "a room is late too early";
    if (open_at(late_us)) return stops ? "nothing leaves, and rooms wait" : "rooms have no end";
  }
  return "";
}

}  // namespace braid::handoff
