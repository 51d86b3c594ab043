// The prefill engine's side of every hand-off under way: which rooms were asked for, whether their
// prompts are computed or handed over, and when their pages are free. Pure: messages, news of the
// engine, ends of reads and the time come in, messages and wishes go out. One thread.
//
// A room that was handed over has its pages until the decode engine has everything or wants no
// more, and no read of them is under way. A room is opened once: the numbers of rooms that are over
// are remembered as long as a question for them could still come.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "handoff/message.h"

namespace braid::handoff {

struct PrefillLimits {
  int64_t room_us = 300'000'000;     // from the question until the decode engine has everything
  int64_t progress_us = 60'000'000;  // between two parts that leave, once the prompt is computed
};

// A room among those of all decode engines.
struct RoomKey {
  SessionId session;
  RoomId room;
  auto operator<=>(const RoomKey&) const = default;
};

class PrefillRooms {
 public:
  explicit PrefillRooms(PrefillLimits limits) : limits_(limits) {}

  struct Effects {
    std::vector<std::pair<SessionId, Body>> send;
    std::vector<std::pair<RoomKey, Ask>> submit;  // compute this; Hand or Ended follows
    std::vector<RoomKey> abort;                   // nobody wants it; Hand or Ended follows
    // The pages that were handed over are free. An error: they did not get there.
    std::vector<std::pair<RoomKey, std::string>> release;
  };
  struct Room {
    bool handed = false;
    bool taken = false;
    std::string error;  // not empty: failed, and waits for the engine or for reads
    int32_t reads = 0;  // of its pages, under way
    int64_t asked_us = 0;
    int64_t handed_us = 0;
  };

  void Joined(SessionId session) { sessions_[session]; }
  void On(SessionId session, const Ask& ask, int64_t now_us, Effects& effects);
  void On(SessionId session, const Cancel& cancel, Effects& effects);
  void On(SessionId session, const Took& took, Effects& effects);
  void Lost(SessionId session, Effects& effects);
  // The pages of all rooms that were handed over are lost.
  void LosePages(const std::string& why, Effects& effects);
  void Tick(int64_t now_us, Effects& effects);

  // Whether parts of the room are still wanted.
  bool Open(RoomKey key) const;
  // Of a room that was handed over: a page is about to be read. True: it may be, and EndRead
  // follows.
  bool BeginRead(RoomKey key);
  // An error: it could not be read.
  void EndRead(RoomKey key, const std::string& error, Effects& effects);
  // A part has left. The session's other rooms wait behind it and are not late meanwhile.
  void Sent(SessionId session, int64_t now_us);

  // The prompt is computed, and its pages stay until they are released.
  void Hand(RoomKey key, int32_t parts, std::string result, int64_t now_us, Effects& effects);
  // The engine's request has ended otherwise; it has no pages.
  void Ended(RoomKey key, const std::string& reason, Effects& effects);
  // This engine cannot compute it at any time.
  void NotFit(RoomKey key, const std::string& reason, Effects& effects);

  const std::map<RoomKey, Room>& rooms() const { return rooms_; }
  // Numbers of rooms that are over and remembered.
  size_t remembered() const;

 private:
  struct Session {
    RoomId open_from{0};
    std::set<RoomId> over;  // at and past open_from
    int64_t sent_us = 0;    // when a part left last
  };
  void Fail(RoomKey key, const std::string& error, bool tell, Effects& effects);
  void EndWith(RoomKey key, Body answer, Effects& effects);
  void Settle(RoomKey key, Effects& effects);
  void Forget(RoomKey key);

  PrefillLimits limits_;
  std::map<RoomKey, Room> rooms_;
  std::map<SessionId, Session> sessions_;
};

}  // namespace braid::handoff
