// A message of another engine. What is accepted is written again as it was, and what it says does
// nothing worse than to be ignored: two rooms stay sound whatever comes.
#include <string>

#include "base/check.h"
#include "handoff/rooms/decode_rooms.h"
#include "handoff/rooms/prefill_rooms.h"

namespace braid::handoff {
namespace {

constexpr SessionId kSession{1};

// The messages of the input, each behind its length.
void Talk(std::string_view input) {
  DecodeRooms decode{DecodeLimits{}};
  PrefillRooms prefill{PrefillLimits{}};
  DecodeRooms::Effects told;
  PrefillRooms::Effects asked;
  prefill.Joined(kSession);
  for (int32_t i = 0; i < 2; ++i) {
    decode.Open(kSession, {.parts = {{GroupId(0), 0}, {GroupId(1), i}}}, 1, told);
  }
  while (input.size() > 1) {
    const size_t size = static_cast<unsigned char>(input[0]);
    const std::optional<Message> message = Decode(input.substr(1, size));
    input.remove_prefix(std::min(input.size(), size + 1));
    if (!message) continue;
    const SessionId from = message->session;
    if (const auto* m = std::get_if<PartHead>(&message->body)) {
      if (decode.BeginWrite(from, *m, 1)) decode.EndWrite(m->room, m->part, {}, told);
    }
    if (const auto* m = std::get_if<Last>(&message->body)) decode.On(from, *m, told);
    if (const auto* m = std::get_if<Refusal>(&message->body)) decode.On(from, *m, told);
    if (const auto* m = std::get_if<Unfit>(&message->body)) decode.On(from, *m, told);
    if (const auto* m = std::get_if<Ask>(&message->body)) prefill.On(from, *m, 1, asked);
    if (const auto* m = std::get_if<Cancel>(&message->body)) prefill.On(from, *m, asked);
    if (const auto* m = std::get_if<Took>(&message->body)) prefill.On(from, *m, asked);
  }
  CHECK(told.over.size() + decode.rooms().size() == 2, "a room has other than one outcome");
  CHECK(prefill.rooms().size() == asked.submit.size(), "the engine has its requests still");
  CHECK(prefill.remembered() <= static_cast<size_t>(kOpenSpanMax));
}

}  // namespace
}  // namespace braid::handoff

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid::handoff;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto message = Decode(input)) CHECK(Encode(*message) == input);
  Talk(input);
  return 0;
}
