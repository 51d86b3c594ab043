// The state that the exploration goes through: engines made of their rooms alone, what is on its
// way between them, the clients' requests and whose pages are whose. One thread.
#pragma once

#include <fmt/core.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "handoff/rooms/decode_rooms.h"
#include "handoff/rooms/prefill_rooms.h"
#include "tests/handoff/explore.h"

namespace braid::handoff {

inline constexpr int64_t kEndOfTime = std::numeric_limits<int64_t>::max() / 2;

inline uint64_t ContentOf(int request, int part) {
  return RandomBits(static_cast<uint64_t>(request), static_cast<uint64_t>(part));
}
inline std::string ResultOf(int request) { return fmt::format("token {}", request); }

// On its way, to the decode or the prefill engine that the session names.
struct Letter {
  int to = 0;  // the engine's number
  bool to_decode = false;
  Message message;
  uint64_t content = 0;  // of a part
  bool stray = false;
};

// Bytes that arrive, or leave, page by page.
struct Write {
  int decode = 0;
  RoomId room;
  PartKey part;
  SessionId session;
  uint64_t content = 0;
};
struct Read {
  int prefill = 0;
  RoomKey key;
  PartKey part;
};

// A client's request, and its pages at the decode engine.
struct Job {
  RoomId room;  // valid once it was opened
  SessionId session;
  bool over = false, arrived = false, stopped = false;
  bool lost = false;  // its pages
  std::vector<uint64_t> pages;
};

// A request at the prefill engine.
struct Work {
  RoomKey key;
  int request = 0;
  int sent = 0;  // parts
  bool aborted = false, pages_held = false, gone = false;
  bool lost = false;  // its pages
};

struct Prefill {
  PrefillRooms rooms{PrefillLimits{}};
  std::vector<Work> works;
};

struct World {
  const Bounds* bounds = nullptr;
  std::vector<DecodeRooms> decodes;
  std::vector<Prefill> prefills;
  std::vector<Job> jobs;
  std::vector<Letter> letters;
  std::vector<Write> writes;
  std::vector<Read> reads;
  std::vector<SessionId> sessions;                  // of prefill * decodes + decode, now
  std::vector<std::pair<int, SessionId>> dead;      // decode engines have yet to notice
  std::vector<std::pair<int, SessionId>> orphaned;  // prefill engines have yet to notice
  int64_t session_count = 0;
  int faults_left = 0;
  bool silent = false;   // a message was lost: only a deadline ends what waits for it
  bool faulty = false;   // something has happened that may end a hand-off
  bool expired = false;  // deadlines have passed at the end
  std::string violation, trail;

  void Violate(std::string what) {
    if (violation.empty()) violation = std::move(what) + " after:" + trail;
  }
  int DecodeOf(int job) const { return job % bounds->decodes; }
  int PrefillOf(int job) const { return (job + job / 2) % bounds->prefills; }
  SessionId& SessionOf(int prefill, int decode) {
    return sessions[static_cast<size_t>(prefill * bounds->decodes + decode)];
  }
  void Connect(int prefill, int decode) {
    SessionOf(prefill, decode) = SessionId(session_count++);
    prefills[static_cast<size_t>(prefill)].rooms.Joined(SessionOf(prefill, decode));
  }

  Job* JobOf(int decode, RoomId room) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (DecodeOf(static_cast<int>(i)) == decode && jobs[i].room == room) return &jobs[i];
    }
    return nullptr;
  }
  Work* WorkOf(int prefill, RoomKey key) {
    for (Work& work : prefills[static_cast<size_t>(prefill)].works) {
      if (work.key == key) return &work;
    }
    return nullptr;
  }
  // Where a session ends: prefill and decode engine, also of one that is over.
  std::vector<std::pair<int, int>> ends_of;

  void Take(int decode, DecodeRooms::Effects& effects) {
    for (auto& [session, body] : effects.send) {
      letters.push_back({ends_of[static_cast<size_t>(session.value)].first,
                         false,
                         {session, std::move(body)},
                         0,
                         false});
    }
    for (const Outcome& outcome : effects.over) {
      Job* job = JobOf(decode, outcome.room);
      if (job == nullptr || job->over) {
        Violate("a room has a second outcome");
        return;
      }
      job->over = true;
      job->arrived = outcome.failure.error.empty();
      const int request = static_cast<int>(job - jobs.data());
      if (!job->arrived) {
        if (!faulty) Violate("a room fails without a fault: " + outcome.failure.error);
        const bool here = outcome.failure.cause == Cause::kHere;
        if (here != (job->stopped || job->lost)) Violate("a room fails for another cause");
        continue;
      }
      for (int p = 0; p < bounds->parts; ++p) {
        if (job->pages[static_cast<size_t>(p)] != ContentOf(request, p)) {
          Violate("wrong pages count as arrived");
        }
      }
      if (outcome.result != ResultOf(request)) Violate("a room is complete without its token");
    }
  }
  void Take(int prefill, PrefillRooms::Effects& effects) {
    for (auto& [session, body] : effects.send) {
      letters.push_back({ends_of[static_cast<size_t>(session.value)].second,
                         true,
                         {session, std::move(body)},
                         0,
                         false});
    }
    for (const auto& [key, ask] : effects.submit) {
      if (WorkOf(prefill, key) != nullptr) Violate("a room's prompt is computed twice");
      prefills[static_cast<size_t>(prefill)].works.push_back(
          {.key = key, .request = std::stoi(ask.request)});
    }
    for (const RoomKey& key : effects.abort) {
      Work* work = WorkOf(prefill, key);
      if (work == nullptr || work->gone) return Violate("an abort of nothing");
      work->aborted = true;
    }
    for (const auto& [key, error] : effects.release) {
      Work* work = WorkOf(prefill, key);
      if (work == nullptr || !work->pages_held) return Violate("a release of nothing");
      work->pages_held = false;
      work->gone = true;
      if (!faulty && !error.empty()) Violate("pages fail without a fault: " + error);
    }
  }
};

// What may happen next.
enum class What : uint8_t {
  kOpen,
  kDeliver,
  kEndWrite,
  kEndRead,
  kEarly,
  kHand,
  kFail,
  kNotice,
  kOrphan,
  // Faults.
  kLose,
  kTwice,
  kStray,
  kDamage,
  kFailRead,
  kLosePrefillPages,
  kLoseDecodePages,
  kAbortJob,
  kFailWork,
  kDiePrefill,
  kDieDecode,
  kExpire,
};
struct Action {
  What what;
  int at = 0;
  int engine = 0;
};

// Does it; what breaks a promise is in `violation` afterwards.
void Act(World& w, const Action& a);
// All deadlines pass.
void ExpireAll(World& w);

}  // namespace braid::handoff
