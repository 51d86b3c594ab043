// Pages that come: who is asked for them, where they are written, and what becomes of the request;
// see partners_state.h.
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "handoff/checksum.h"
#include "handoff/partners_state.h"
#include "scheduler/event_codec.h"

namespace braid::handoff {

void Partners::State::Receive(const PageMove& move, std::string request, EventSink& events) {
  ++stats.rooms;
  Arrival arrival{.move = move.id,
                  .request = move.request,
                  .events = &events,
                  .pages = pages.Of(move),
                  .begin = move.begin,
                  .record = std::move(request),
                  .since_us = MonotonicUs(),
                  .asked = {}};
  const std::string error = AskFor(arrival);
  if (error.empty()) return;
  ++stats.failed;
  if (choice.empty() && !std::exchange(alone, true)) {
    LogWarning("no prefill engine is connected: prompts are computed here until one is");
  }
  EndMove(events, {.move = move.id, .error = error, .lost = {}, .logprob = {}});
}

std::string Partners::State::AskFor(Arrival& arrival) {
  if (arrival.record.size() > kRequestBytesMax) return "the request is too large to be told";
  const auto session = choice.Choose(decode.rooms(), arrival.asked, MonotonicUs());
  if (!session) return "no prefill engine is connected that takes prompts now";
  DecodeRooms::Wish wish{.begin = arrival.begin, .parts = {}, .request = arrival.record};
  for (const auto& [part, page] : arrival.pages) wish.parts.push_back(part);
  DecodeRooms::Effects effects;
  const auto room = decode.Open(*session, std::move(wish), arrival.since_us, effects);
  if (!room) return "too many rooms are open";
  choice.Opened(*session, *room);
  arrival.asked = *session;
  ++arrival.asks;
  arrivals[*room] = std::move(arrival);
  Apply(effects);
  return "";
}

void Partners::State::Apply(DecodeRooms::Effects& effects) {
  for (auto& [session, body] : effects.send) Tell(session, std::move(body));
  for (const Outcome& outcome : effects.over) Deliver(outcome);
  effects = {};
}

void Partners::State::Deliver(const Outcome& outcome) {
  const auto at = arrivals.find(outcome.room);
  Arrival arrival = std::move(at->second);
  arrivals.erase(at);
  Judge(arrival.asked, outcome);
  if (AsksAnother(arrival, outcome)) return;
  const std::string& error = outcome.failure.error;
  PagesMoved moved{.move = arrival.move, .error = error, .lost = {}, .logprob = {}};
  if (error.empty()) {
    const std::optional<PagesMoved> result = EventIn<PagesMoved>(outcome.result);
    if (result) {
      moved.token = result->token;
      moved.logprob = result->logprob;
    } else {
      moved.error = "the prefill engine's first token cannot be read";
    }
  }
  if (!moved.error.empty()) {
    ++stats.failed;
    LogWarning("the pages of request {} did not arrive: {}; its prompt is computed here",
               arrival.request.value, moved.error);
  } else {
    ++stats.done;
  }
  EndMove(*arrival.events, std::move(moved));
}

void Partners::State::Judge(SessionId session, const Outcome& outcome) {
  const int64_t pause_us = choice.Ended(session, outcome, MonotonicUs());
  if (pause_us == 0) return;
  LogWarning("the {} is asked for no prompts for {} s: {}", peers.at(sessions.at(session)).name,
             pause_us / 1'000'000, outcome.failure.error);
}

// One that fails late would leave another no time.
bool Partners::State::AsksAnother(Arrival& arrival, const Outcome& outcome) {
  const std::string& error = outcome.failure.error;
  if (error.empty() || outcome.failure.cause == Cause::kHere || arrival.asks > 1) return false;
  if (MonotonicUs() - arrival.since_us >= options.decode.room_us / 2) return false;
  const RequestId request = arrival.request;
  if (!AskFor(arrival).empty()) return false;
  LogWarning("the pages of request {} did not arrive: {}; another prefill engine is asked",
             request.value, error);
  return true;
}

void Partners::State::OnReceived(uint64_t cookie, bool whole) {
  const auto at = writes.find(cookie);
  const Write write = at->second;
  writes.erase(at);
  if (write.lost) return bytes->Free(write.bytes);
  const bool good = whole && Checksum(write.bytes, write.page.size) == write.checksum;
  if (!good) return EndWrite(write, {"a page did not arrive as it was sent"});
  bytes->Store(write.page, write.bytes, [this, write](const Status& status) {
    if (status) stats.bytes += static_cast<int64_t>(write.page.size);
    EndWrite(write, {status ? "" : status.error().message, Cause::kHere});
  });
}

void Partners::State::EndWrite(const Write& write, const Failure& failure) {
  bytes->Free(write.bytes);
  DecodeRooms::Effects effects;
  decode.EndWrite(write.room, write.part, failure, effects);
  Apply(effects);
}

}  // namespace braid::handoff
