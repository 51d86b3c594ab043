// What a room's pages wait for, and which rooms are remembered; see the header.
#include "handoff/rooms/prefill_rooms.h"

#include <algorithm>

#include "base/check.h"
#include "handoff/rooms/decode_rooms.h"

namespace braid::handoff {

void PrefillRooms::On(SessionId from, const Ask& ask, int64_t now_us, Effects& effects) {
  const auto at = sessions_.find(from);
  if (at == sessions_.end()) return;
  Session& session = at->second;
  if (ask.open_from > session.open_from) {
    session.open_from = ask.open_from;
    session.over.erase(session.over.begin(), session.over.lower_bound(ask.open_from));
  }
  const RoomKey key{from, ask.room};
  const bool late = ask.room < session.open_from || session.over.contains(ask.room);
  if (late || rooms_.contains(key)) return;
  if (ask.room.value - session.open_from.value >= kOpenSpanMax) {
    effects.send.emplace_back(from, Refusal{ask.room, "too many rooms are open"});
    return;
  }
  rooms_[key].asked_us = now_us;
  effects.submit.emplace_back(key, ask);
}

void PrefillRooms::On(SessionId session, const Cancel& cancel, Effects& effects) {
  const RoomKey key{session, cancel.room};
  if (rooms_.contains(key)) {
    Fail(key, "the decode engine wants it no more", false, effects);
  } else {
    Forget(key);  // it may have overtaken the question
  }
}

void PrefillRooms::On(SessionId session, const Took& took, Effects& effects) {
  const auto at = rooms_.find({session, took.room});
  if (at == rooms_.end() || !at->second.handed) return;
  at->second.taken = true;
  Settle(at->first, effects);
}

void PrefillRooms::Lost(SessionId session, Effects& effects) {
  sessions_.erase(session);
  std::vector<RoomKey> lost;
  for (const auto& [key, room] : rooms_) {
    if (key.session == session) lost.push_back(key);
  }
  for (const RoomKey& key : lost) Fail(key, "the decode engine is gone", false, effects);
}

void PrefillRooms::LosePages(const std::string& why, Effects& effects) {
  std::vector<RoomKey> lost;
  for (const auto& [key, room] : rooms_) {
    if (room.handed) lost.push_back(key);
  }
  for (const RoomKey& key : lost) Fail(key, why, true, effects);
}

void PrefillRooms::Tick(int64_t now_us, Effects& effects) {
  std::vector<std::pair<RoomKey, const char*>> late;
  for (const auto& [key, room] : rooms_) {
    const auto session = sessions_.find(key.session);
    if (session == sessions_.end()) continue;  // it has failed
    const int64_t left_us = std::max(room.handed_us, session->second.sent_us);
    const bool stuck = room.handed && now_us - left_us >= limits_.progress_us;
    if (!stuck && now_us - room.asked_us < limits_.room_us) continue;
    late.emplace_back(key, room.handed ? "the decode engine did not take the pages in time"
                                       : "the prompt was not computed in time");
  }
  for (const auto& [key, why] : late) Fail(key, why, true, effects);
}

bool PrefillRooms::Open(RoomKey key) const {
  const auto at = rooms_.find(key);
  return at != rooms_.end() && at->second.error.empty();
}

bool PrefillRooms::BeginRead(RoomKey key) {
  if (!Open(key) || !rooms_[key].handed) return false;
  ++rooms_[key].reads;
  return true;
}

void PrefillRooms::EndRead(RoomKey key, const std::string& error, Effects& effects) {
  Room& room = rooms_.at(key);
  CHECK(room.reads > 0);
  --room.reads;
  if (!error.empty() && room.error.empty()) return Fail(key, error, true, effects);
  Settle(key, effects);
}

void PrefillRooms::Sent(SessionId session, int64_t now_us) {
  const auto at = sessions_.find(session);
  if (at != sessions_.end()) at->second.sent_us = now_us;
}

void PrefillRooms::Hand(RoomKey key, int32_t parts, std::string result, int64_t now_us,
                        Effects& effects) {
  Room& room = rooms_.at(key);
  CHECK(!room.handed);
  room.handed = true;
  room.handed_us = now_us;
  if (room.error.empty()) {
    effects.send.emplace_back(key.session, Last{key.room, parts, std::move(result)});
  }
  Settle(key, effects);
}

void PrefillRooms::Ended(RoomKey key, const std::string& reason, Effects& effects) {
  EndWith(key, Refusal{key.room, reason}, effects);
}

void PrefillRooms::NotFit(RoomKey key, const std::string& reason, Effects& effects) {
  EndWith(key, Unfit{key.room, reason}, effects);
}

void PrefillRooms::EndWith(RoomKey key, Body answer, Effects& effects) {
  const Room& room = rooms_.at(key);
  CHECK(!room.handed);
  if (room.error.empty()) effects.send.emplace_back(key.session, std::move(answer));
  rooms_.erase(key);
  Forget(key);
}

// The engine still has the request: its end or its pages come.
void PrefillRooms::Fail(RoomKey key, const std::string& error, bool tell, Effects& effects) {
  Room& room = rooms_.at(key);
  if (!room.error.empty()) return;
  room.error = error;
  if (tell) effects.send.emplace_back(key.session, Refusal{key.room, error});
  if (!room.handed) effects.abort.push_back(key);
  Settle(key, effects);
}

void PrefillRooms::Settle(RoomKey key, Effects& effects) {
  const Room& room = rooms_.at(key);
  const bool wanted = room.error.empty() && !room.taken;
  if (!room.handed || wanted || room.reads > 0) return;
  effects.release.emplace_back(key, room.taken ? "" : room.error);
  rooms_.erase(key);
  Forget(key);
}

void PrefillRooms::Forget(RoomKey key) {
  const auto session = sessions_.find(key.session);
  if (session == sessions_.end()) return;
  Session& s = session->second;
  const bool possible =
      key.room >= s.open_from && key.room.value - s.open_from.value < kOpenSpanMax;
  if (possible) s.over.insert(key.room);
}

size_t PrefillRooms::remembered() const {
  size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session.over.size();
  return count;
}

}  // namespace braid::handoff
