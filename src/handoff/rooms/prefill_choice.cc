// See the header.
#include "handoff/rooms/prefill_choice.h"

#include <algorithm>
#include <utility>

namespace braid::handoff {

std::optional<SessionId> PrefillChoice::Choose(const std::map<RoomId, DecodeRooms::Room>& rooms,
                                               SessionId except, int64_t now_us) const {
  std::map<SessionId, int> open;
  for (const auto& [session, engine] : engines_) {
    const bool trusted = engine.failures == 0;
    const bool tries = now_us >= engine.not_before_us && !engine.trial.valid();
    if (session != except && (trusted || tries)) open[session] = 0;
  }
  for (const auto& [id, room] : rooms) {
    if (open.contains(room.session)) ++open[room.session];
  }
  const auto least = std::ranges::min_element(
      open, {}, [](const auto& entry) { return std::pair(entry.second, entry.first); });
  if (least == open.end()) return {};
  return least->first;
}

void PrefillChoice::Opened(SessionId session, RoomId room) {
  Engine& engine = engines_.at(session);
  if (engine.failures > 0) engine.trial = room;
}

int64_t PrefillChoice::Ended(SessionId session, const Outcome& outcome, int64_t now_us) {
  const auto at = engines_.find(session);
  if (at == engines_.end()) return 0;
  Engine& engine = at->second;
  const bool trial = outcome.room == engine.trial;
  if (trial) engine.trial = RoomId();
  // Rooms that were opened before the engine failed say nothing new.
  if (engine.failures > 0 && !trial) return 0;
  if (outcome.failure.error.empty()) engine.failures = 0;
  if (outcome.failure.error.empty() || outcome.failure.cause != Cause::kEngine) return 0;
  const int64_t pause_us = kPauseUs << std::min(engine.failures++, kDoublingsMax);
  engine.not_before_us = now_us + pause_us;
  return pause_us;
}

}  // namespace braid::handoff
