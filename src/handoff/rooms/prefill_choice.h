// Which prefill engine is asked for a prompt: the one with the fewest rooms, of those that do not
// fail. Pure: outcomes of rooms and the time come in. One thread.
//
// An engine that refuses or fails is at once the one with the fewest rooms. So it is left alone for
// a pause, which doubles with every failure, and is then asked once; when that room ends well, it
// is as good as any. A connection that begins anew begins here anew.
#pragma once

#include <map>
#include <optional>

#include "handoff/rooms/decode_rooms.h"

namespace braid::handoff {

class PrefillChoice {
 public:
  static constexpr int64_t kPauseUs = 1'000'000;
  static constexpr int32_t kDoublingsMax = 5;

  void Joined(SessionId session) { engines_[session]; }
  void Lost(SessionId session) { engines_.erase(session); }
  bool empty() const { return engines_.empty(); }

  // Whom to ask, but not `except`; none: nobody may be asked now. `rooms` are all that are open.
  std::optional<SessionId> Choose(const std::map<RoomId, DecodeRooms::Room>& rooms,
                                  SessionId except, int64_t now_us) const;
  // It has been asked for this room.
  void Opened(SessionId session, RoomId room);
  // How the room ended. Returns for how long the engine is left alone from now on; 0: as before.
  int64_t Ended(SessionId session, const Outcome& outcome, int64_t now_us);

 private:
  struct Engine {
    int32_t failures = 0;  // since a room ended well
    int64_t not_before_us = 0;
    RoomId trial;  // the room that decides whether it still fails
  };

  std::map<SessionId, Engine> engines_;
};

}  // namespace braid::handoff
