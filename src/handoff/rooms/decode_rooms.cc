// Which parts a room waits for, and how it ends; see the header.
#include "handoff/rooms/decode_rooms.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace braid::handoff {

std::optional<RoomId> DecodeRooms::Open(SessionId session, Wish wish, int64_t now_us,
                                        Effects& effects) {
  CHECK(!wish.parts.empty());
  const RoomId id(opened_);
  const RoomId open_from = rooms_.empty() ? id : rooms_.begin()->first;
  if (id.value - open_from.value >= kOpenSpanMax) return {};
  ++opened_;
  Room& room = rooms_[id];
  room.session = session;
  room.opened_us = now_us;
  for (const PartKey& part : wish.parts) room.parts[part] = PartState::kMissing;
  effects.send.emplace_back(session, Ask{id, open_from, wish.begin, std::move(wish.request)});
  return id;
}

void DecodeRooms::Abort(RoomId room, Effects& effects) {
  if (rooms_.contains(room)) Fail(room, {"the request was aborted", Cause::kHere}, effects);
}

DecodeRooms::Room* DecodeRooms::Find(SessionId session, RoomId room) {
  const auto at = rooms_.find(room);
  if (at == rooms_.end() || at->second.session != session || !at->second.failure.error.empty()) {
    return nullptr;  // over, or never opened, or somebody else's
  }
  return &at->second;
}

bool DecodeRooms::BeginWrite(SessionId session, const PartHead& head, int64_t now_us) {
  Room* room = Find(session, head.room);
  if (room == nullptr) return false;
  const auto part = room->parts.find(head.part);
  if (part == room->parts.end() || part->second != PartState::kMissing) return false;
  part->second = PartState::kWriting;
  part_us_[session] = now_us;
  ++room->writing;
  return true;
}

void DecodeRooms::EndWrite(RoomId id, PartKey part, const Failure& failure, Effects& effects) {
  Room& room = rooms_.at(id);
  PartState& state = room.parts.at(part);
  CHECK(state == PartState::kWriting);
  --room.writing;
  state = failure.error.empty() ? PartState::kHere : PartState::kMissing;
  if (!failure.error.empty()) return Fail(id, failure, effects);
  Settle(id, effects);
}

void DecodeRooms::On(SessionId session, const Last& last, int64_t now_us, Effects& effects) {
  Room* room = Find(session, last.room);
  if (room == nullptr || room->result) return;
  if (last.parts != static_cast<int32_t>(room->parts.size())) {
    return Fail(
        last.room,
        {fmt::format("the prefill engine sent {} blocks, not {}", last.parts, room->parts.size())},
        effects);
  }
  room->result = last.result;
  room->computed_us = now_us;
  Settle(last.room, effects);
}

void DecodeRooms::On(SessionId session, const Refusal& refusal, Effects& effects) {
  if (Find(session, refusal.room) == nullptr) return;
  Fail(refusal.room, {"the prefill engine: " + refusal.reason}, effects);
}

void DecodeRooms::On(SessionId session, const Unfit& unfit, Effects& effects) {
  if (Find(session, unfit.room) == nullptr) return;
  Fail(unfit.room, {"the prefill engine: " + unfit.reason, Cause::kRequest}, effects);
}

void DecodeRooms::Lost(SessionId session, const std::string& why, Effects& effects) {
  part_us_.erase(session);
  std::vector<RoomId> lost;
  for (const auto& [id, room] : rooms_) {
    if (room.session == session) lost.push_back(id);
  }
  for (const RoomId id : lost) Fail(id, {why}, effects);
}

void DecodeRooms::LosePages(const std::string& why, Effects& effects) {
  std::vector<RoomId> all;
  for (const auto& [id, room] : rooms_) all.push_back(id);
  for (const RoomId id : all) Fail(id, {why, Cause::kHere}, effects);
}

// Until the prompt is computed parts may come early, and at any distance.
void DecodeRooms::Tick(int64_t now_us, Effects& effects) {
  std::vector<std::pair<RoomId, const char*>> late;
  for (const auto& [id, room] : rooms_) {
    const auto part = part_us_.find(room.session);
    const int64_t came_us = std::max(room.computed_us, part == part_us_.end() ? 0 : part->second);
    if (now_us - room.opened_us >= limits_.room_us) {
      late.emplace_back(id, "the prompt was not computed in time");
    } else if (room.result && now_us - came_us >= limits_.progress_us) {
      late.emplace_back(id, "no page has come for too long");
    }
  }
  for (const auto& [id, why] : late) Fail(id, {why}, effects);
}

// The first failure counts, but that nobody wants the pages any more counts in any case.
void DecodeRooms::Fail(RoomId id, const Failure& failure, Effects& effects) {
  Room& room = rooms_.at(id);
  if (room.failure.error.empty()) {
    room.failure = failure;
    effects.send.emplace_back(room.session, Cancel{id});
  }
  if (failure.cause == Cause::kHere) room.failure.cause = Cause::kHere;
  Settle(id, effects);
}

// Ends the room when it has failed or is complete, and nothing is being written.
void DecodeRooms::Settle(RoomId id, Effects& effects) {
  Room& room = rooms_.at(id);
  if (room.writing > 0) return;
  const bool complete =
      room.result.has_value() && std::ranges::all_of(room.parts, [](const auto& part) {
        return part.second == PartState::kHere;
      });
  const bool failed = !room.failure.error.empty();
  if (!failed && !complete) return;
  if (!failed) effects.send.emplace_back(room.session, Took{id});
  effects.over.push_back({id, room.failure, room.result.value_or("")});
  rooms_.erase(id);
}

}  // namespace braid::handoff
