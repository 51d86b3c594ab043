// The decode engine's side of every hand-off under way: which parts of which room have arrived, may
// be written now, or are missing, and when a room is over. Pure: messages, ends of writes and the
// time come in, messages and outcomes go out. One thread.
//
// The pages of a room are the room's until its outcome, and the outcome waits for the last write
// that has begun: afterwards nobody writes there. A room has one outcome.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "handoff/message.h"

namespace braid::handoff {

struct DecodeLimits {
  // Between two parts, of any of an engine's rooms, once the prompt is computed.
  int64_t progress_us = 60'000'000;
  int64_t room_us = 300'000'000;  // from the question to the last part
};

// Rooms between the oldest that is open and the newest: what the other side may have to remember.
inline constexpr int64_t kOpenSpanMax = 4096;

// Why pages did not come.
enum class Cause : uint8_t {
  kHere,     // nobody wants them any more, or they are lost at the decode engine
  kRequest,  // the prefill engine cannot compute this request
  kEngine,   // the prefill engine, or the connection to it, has failed
};
struct Failure {
  std::string error;  // empty: none
  Cause cause = Cause::kEngine;
};

struct Outcome {
  RoomId room;
  Failure failure;     // none: every part is in its page
  std::string result;  // of Last
};

class DecodeRooms {
 public:
  explicit DecodeRooms(DecodeLimits limits) : limits_(limits) {}

  struct Effects {
    std::vector<std::pair<SessionId, Body>> send;
    std::vector<Outcome> over;
  };
  enum class PartState : uint8_t { kMissing, kWriting, kHere };
  struct Room {
    SessionId session;
    std::map<PartKey, PartState> parts;
    std::optional<std::string> result;
    Failure failure;  // one: it waits for its writes to end
    int64_t opened_us = 0;
    int64_t computed_us = 0;  // when the result came; 0: it has not
    int32_t writing = 0;
  };

  struct Wish {
    int32_t begin = 0;           // of the tokens whose parts are missing
    std::vector<PartKey> parts;  // each has its page
    std::string request;         // of Ask
  };
  // Asks for a prompt; the time that the room may take begins at `now_us`. Nothing, with no effect,
  // where too many rooms have been opened since the oldest that is open.
  std::optional<RoomId> Open(SessionId session, Wish wish, int64_t now_us, Effects& effects);
  // Nobody wants the pages any more.
  void Abort(RoomId room, Effects& effects);

  // A part's bytes are about to come. True: they may be written into its page, and EndWrite
  // follows. False: they must be discarded.
  bool BeginWrite(SessionId session, const PartHead& head, int64_t now_us);
  // The part is in its page; or a failure says why it is not.
  void EndWrite(RoomId room, PartKey part, const Failure& failure, Effects& effects);

  void On(SessionId session, const Last& last, int64_t now_us, Effects& effects);
  void On(SessionId session, const Refusal& refusal, Effects& effects);
  void On(SessionId session, const Unfit& unfit, Effects& effects);
  // The connection has ended. Its writes end as well, and are reported.
  void Lost(SessionId session, const std::string& why, Effects& effects);
  // The pages of all rooms are lost.
  void LosePages(const std::string& why, Effects& effects);
  void Tick(int64_t now_us, Effects& effects);

  const std::map<RoomId, Room>& rooms() const { return rooms_; }

 private:
  Room* Find(SessionId session, RoomId room);
  void Fail(RoomId id, const Failure& failure, Effects& effects);
  void Settle(RoomId id, Effects& effects);

  DecodeLimits limits_;
  std::map<RoomId, Room> rooms_;
  // When a part came last: the session's other rooms wait behind it and are not late meanwhile.
  std::map<SessionId, int64_t> part_us_;
  int64_t opened_ = 0;  // rooms ever
};

}  // namespace braid::handoff
