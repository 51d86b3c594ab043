// What two engines say to each other while the prompt of a request moves from the one that computes
// it to the one that decodes it. Values without pointers; any thread.
//
// A room is one hand-off: of one request, between two engines, once. The decode engine numbers its
// rooms and uses no number twice. A session is one connection of two engines; every message carries
// its number, so that words of an older connection are recognised.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"
#include "base/result.h"

namespace braid::handoff {

using RoomId = StrongId<struct RoomTag, int64_t>;
using SessionId = StrongId<struct SessionTag, int64_t>;

// What travels at once: one block of one cache group.
struct PartKey {
  GroupId group;
  int32_t index = 0;  // in the group's block table
  auto operator<=>(const PartKey&) const = default;
};

// Decode to prefill: compute this prompt and send the parts of tokens [begin, its end). The pages
// for them are reserved. Every room before `open_from` is over.
struct Ask {
  RoomId room;
  RoomId open_from;
  int32_t begin = 0;
  std::string request;  // the record of a Submit (scheduler/event_codec.h)
};
// Decode to prefill: the room is over; send no more.
struct Cancel {
  RoomId room;
};
// Decode to prefill: everything has arrived and is right; the room is over.
struct Took {
  RoomId room;
};
// Prefill to decode, in front of the part's bytes.
struct PartHead {
  RoomId room;
  PartKey part;
  uint64_t checksum = 0;  // of the bytes (checksum.h)
};
// Prefill to decode: what the prompt's end gives. It may overtake parts.
struct Last {
  RoomId room;
  int32_t parts = 0;   // of the room, in all
  std::string result;  // the record of the event that ends the transfer: token, log-probability
};
// Prefill to decode: the prompt is not computed, or no longer; the room is over. Before the session
// either way: the other side is no partner.
struct Refusal {
  RoomId room;
  std::string reason;
};
// Either way, when there was nothing else to say.
struct Ping {};
// Prefill to decode: this engine cannot compute the request, however often it is asked, as it could
// others; the room is over.
struct Unfit {
  RoomId room;
  std::string reason;
};
// Before the session (handoff/pairing.h): who speaks, and a proof that it has the key.
struct Hello {
  uint32_t version = 0;
  std::string fingerprint, nonce, proof;
};

using Body = std::variant<Ask, Cancel, Took, PartHead, Last, Refusal, Ping, Hello, Unfit>;

struct Message {
  SessionId session;
  Body body;
};

inline constexpr size_t kRequestBytesMax = size_t{64} << 20;
inline constexpr size_t kResultBytesMax = size_t{1} << 20;
inline constexpr size_t kReasonBytesMax = 1024;
inline constexpr size_t kFingerprintBytesMax = 8192;
inline constexpr size_t kNonceBytesMax = 64;

// Of these messages and what they mean. 2: the checksum of checksum.h. 3: Unfit.
inline constexpr uint32_t kProtocolVersion = 3;

std::string Encode(const Message& message);
// None for anything that Encode does not make, and for texts above their bounds.
std::optional<Message> Decode(std::string_view bytes);

}  // namespace braid::handoff
