// What happens to the state: one action at a time, a step of an engine or of the network, or a
// fault. One thread.
#include "tests/handoff/world.h"

#include <algorithm>

namespace braid::handoff {
namespace {

constexpr const char* kNames[] = {"open",
                                  "deliver",
                                  "end-write",
                                  "end-read",
                                  "early",
                                  "hand",
                                  "fail",
                                  "notice",
                                  "orphan",
                                  "lose",
                                  "twice",
                                  "stray",
                                  "damage",
                                  "fail-read",
                                  "lose-prefill-pages",
                                  "lose-decode-pages",
                                  "abort",
                                  "fail-work",
                                  "prefill-dies",
                                  "decode-dies",
                                  "expire"};
static_assert(std::size(kNames) == static_cast<size_t>(What::kExpire) + 1);

void Deliver(World& w, const Letter& letter) {
  const SessionId session = letter.message.session;
  const size_t to = static_cast<size_t>(letter.to);
  if (letter.to_decode) {
    DecodeRooms& rooms = w.decodes[to];
    DecodeRooms::Effects effects;
    if (const auto* head = std::get_if<PartHead>(&letter.message.body)) {
      if (rooms.BeginWrite(session, *head, 1)) {
        w.writes.push_back({letter.to, head->room, head->part, session, letter.content});
      }
    } else if (const auto* last = std::get_if<Last>(&letter.message.body)) {
      rooms.On(session, *last, 1, effects);
    } else if (const auto* refusal = std::get_if<Refusal>(&letter.message.body)) {
      rooms.On(session, *refusal, effects);
    } else if (const auto* unfit = std::get_if<Unfit>(&letter.message.body)) {
      rooms.On(session, *unfit, effects);
    }
    return w.Take(letter.to, effects);
  }
  PrefillRooms& rooms = w.prefills[to].rooms;
  PrefillRooms::Effects effects;
  if (const auto* ask = std::get_if<Ask>(&letter.message.body)) {
    rooms.On(session, *ask, 1, effects);
  } else if (const auto* cancel = std::get_if<Cancel>(&letter.message.body)) {
    rooms.On(session, *cancel, effects);
  } else if (const auto* took = std::get_if<Took>(&letter.message.body)) {
    rooms.On(session, *took, effects);
  }
  w.Take(letter.to, effects);
}

void SendPart(World& w, const Work& work, int part) {
  w.letters.push_back({w.ends_of[static_cast<size_t>(work.key.session.value)].second,
                       true,
                       {work.key.session, PartHead{work.key.room, {GroupId(0), part}, 0}},
                       work.lost ? 1 : ContentOf(work.request, part),
                       false});
}

void EndWrite(World& w, int at, bool good) {
  const Write write = w.writes[static_cast<size_t>(at)];
  w.writes.erase(w.writes.begin() + at);
  Job* job = w.JobOf(write.decode, write.room);
  if (job == nullptr || job->over) return w.Violate("a write lands in pages that are free");
  job->pages[static_cast<size_t>(write.part.index)] = good ? write.content : 0;
  DecodeRooms::Effects effects;
  w.decodes[static_cast<size_t>(write.decode)].EndWrite(write.room, write.part,
                                                        {good ? "" : "damaged"}, effects);
  w.Take(write.decode, effects);
}

void EndRead(World& w, int at, bool good) {
  const Read read = w.reads[static_cast<size_t>(at)];
  w.reads.erase(w.reads.begin() + at);
  Work* work = w.WorkOf(read.prefill, read.key);
  if (work == nullptr || !work->pages_held) return w.Violate("a read of pages that are free");
  good &= !work->lost;
  if (good) SendPart(w, *work, read.part.index);
  PrefillRooms::Effects effects;
  w.prefills[static_cast<size_t>(read.prefill)].rooms.EndRead(read.key, good ? "" : "lost",
                                                              effects);
  w.Take(read.prefill, effects);
}

// The engine hands the prompt's pages over, and the transport begins to read them.
void Hand(World& w, int prefill, int at) {
  Prefill& p = w.prefills[static_cast<size_t>(prefill)];
  Work& work = p.works[static_cast<size_t>(at)];
  work.pages_held = true;
  PrefillRooms::Effects effects;
  const RoomKey key = work.key;
  const int first = work.sent;
  p.rooms.Hand(key, w.bounds->parts, ResultOf(work.request), 1, effects);
  for (int part = first; part < w.bounds->parts; ++part) {
    if (p.rooms.BeginRead(key)) w.reads.push_back({prefill, key, {GroupId(0), part}});
  }
  work.sent = w.bounds->parts;
  w.Take(prefill, effects);
}

void FailWork(World& w, int prefill, int at) {
  Prefill& p = w.prefills[static_cast<size_t>(prefill)];
  PrefillRooms::Effects effects;
  Work& work = p.works[static_cast<size_t>(at)];
  work.gone = true;
  if (work.request == 0) {
    p.rooms.NotFit(work.key, "too long", effects);
  } else {
    p.rooms.Ended(work.key, "failed", effects);
  }
  w.Take(prefill, effects);
}

// All that a prefill engine had is gone; another one begins in its place.
void DiePrefill(World& w, int prefill) {
  for (int d = 0; d < w.bounds->decodes; ++d) w.dead.emplace_back(d, w.SessionOf(prefill, d));
  w.prefills[static_cast<size_t>(prefill)] = Prefill();
  std::erase_if(w.reads, [&](const Read& r) { return r.prefill == prefill; });
  std::erase_if(w.orphaned, [&](const auto& o) {
    return w.ends_of[static_cast<size_t>(o.second.value)].first == prefill;
  });
  for (int d = 0; d < w.bounds->decodes; ++d) {
    w.ends_of.emplace_back(prefill, d);
    w.Connect(prefill, d);
  }
}

void DieDecode(World& w, int decode) {
  for (int p = 0; p < w.bounds->prefills; ++p) w.orphaned.emplace_back(p, w.SessionOf(p, decode));
  w.decodes[static_cast<size_t>(decode)] = DecodeRooms(DecodeLimits{});
  std::erase_if(w.writes, [&](const Write& o) { return o.decode == decode; });
  std::erase_if(w.dead, [&](const auto& o) { return o.first == decode; });
  for (size_t j = 0; j < w.jobs.size(); ++j) {
    if (w.DecodeOf(static_cast<int>(j)) == decode) {
      w.jobs[j].over = true;
      w.jobs[j].room = {};
      w.jobs[j].stopped = true;
    }
  }
  for (int p = 0; p < w.bounds->prefills; ++p) {
    w.ends_of.emplace_back(p, decode);
    w.Connect(p, decode);
  }
}

void Open(World& w, int at) {
  Job& job = w.jobs[static_cast<size_t>(at)];
  const int d = w.DecodeOf(at);
  std::vector<PartKey> parts;
  for (int p = 0; p < w.bounds->parts; ++p) parts.push_back({GroupId(0), p});
  DecodeRooms::Effects effects;
  job.session = w.SessionOf(w.PrefillOf(at), d);
  job.room = *w.decodes[static_cast<size_t>(d)].Open(
      job.session, {.begin = 0, .parts = parts, .request = std::to_string(at)}, 1, effects);
  w.Take(d, effects);
}

// A decode engine learns that a connection has ended, and its transport that no write goes on.
void Notice(World& w, int at) {
  const auto [decode, session] = w.dead[static_cast<size_t>(at)];
  w.dead.erase(w.dead.begin() + at);
  DecodeRooms::Effects effects;
  w.decodes[static_cast<size_t>(decode)].Lost(session, "lost", effects);
  w.Take(decode, effects);
  for (int i = static_cast<int>(w.writes.size()); i-- > 0;) {
    if (w.writes[static_cast<size_t>(i)].session == session) EndWrite(w, i, false);
  }
}

void Orphan(World& w, int at) {
  const auto [prefill, session] = w.orphaned[static_cast<size_t>(at)];
  w.orphaned.erase(w.orphaned.begin() + at);
  PrefillRooms::Effects effects;
  w.prefills[static_cast<size_t>(prefill)].rooms.Lost(session, effects);
  w.Take(prefill, effects);
}

// Comes from another session, with other bytes.
void Stray(World& w, Letter letter) {
  const SessionId session = letter.message.session;
  letter.content = 1;
  letter.stray = true;
  letter.message.session =
      w.SessionOf(1 - w.ends_of[static_cast<size_t>(session.value)].first, letter.to);
  w.letters.push_back(std::move(letter));
}

// A device fails, with the pages of all that an engine has handed over, or is to receive.
void LosePrefillPages(World& w, int prefill) {
  Prefill& p = w.prefills[static_cast<size_t>(prefill)];
  for (Work& work : p.works) work.lost = work.pages_held;
  PrefillRooms::Effects effects;
  p.rooms.LosePages("lost", effects);
  w.Take(prefill, effects);
}

void LoseDecodePages(World& w, int decode) {
  for (size_t j = 0; j < w.jobs.size(); ++j) {
    Job& job = w.jobs[j];
    const bool here = w.DecodeOf(static_cast<int>(j)) == decode && job.room.valid() && !job.over;
    if (!here) continue;
    job.pages.assign(job.pages.size(), 0);
    job.lost = true;
  }
  DecodeRooms::Effects effects;
  w.decodes[static_cast<size_t>(decode)].LosePages("lost", effects);
  w.Take(decode, effects);
}

}  // namespace

void ExpireAll(World& w) {
  w.trail += " time";
  for (int d = 0; d < w.bounds->decodes; ++d) {
    DecodeRooms::Effects effects;
    w.decodes[static_cast<size_t>(d)].Tick(kEndOfTime, effects);
    w.Take(d, effects);
  }
  for (int p = 0; p < w.bounds->prefills; ++p) {
    PrefillRooms::Effects effects;
    w.prefills[static_cast<size_t>(p)].rooms.Tick(kEndOfTime, effects);
    w.Take(p, effects);
  }
}

void Act(World& w, const Action& a) {
  const size_t at = static_cast<size_t>(a.at), engine = static_cast<size_t>(a.engine);
  w.trail += fmt::format(" {}({},{})", kNames[static_cast<size_t>(a.what)], a.engine, a.at);
  if (a.what >= What::kLose) {
    --w.faults_left;
    // A copy of a message ends nothing.
    if (a.what != What::kTwice && a.what != What::kStray) w.faulty = true;
  }
  switch (a.what) {
    case What::kOpen:
      return Open(w, a.at);
    case What::kDeliver: {
      const Letter letter = w.letters[at];
      w.letters.erase(w.letters.begin() + a.at);
      return Deliver(w, letter);
    }
    case What::kEndWrite:
      return EndWrite(w, a.at, true);
    case What::kEndRead:
      return EndRead(w, a.at, true);
    case What::kFailRead:
      return EndRead(w, a.at, false);
    case What::kLosePrefillPages:
      return LosePrefillPages(w, a.at);
    case What::kLoseDecodePages:
      return LoseDecodePages(w, a.at);
    case What::kEarly: {
      Work& work = w.prefills[engine].works[at];
      return SendPart(w, work, work.sent++);
    }
    case What::kHand:
      return Hand(w, a.engine, a.at);
    case What::kFail:
    case What::kFailWork:
      return FailWork(w, a.engine, a.at);
    case What::kNotice:
      return Notice(w, a.at);
    case What::kOrphan:
      return Orphan(w, a.at);
    case What::kLose:
      w.silent = true;
      w.letters.erase(w.letters.begin() + a.at);
      return;
    case What::kTwice:
      w.letters.push_back(w.letters[at]);
      return;
    case What::kStray:
      return Stray(w, w.letters[at]);
    case What::kDamage:
      return EndWrite(w, a.at, false);
    case What::kAbortJob: {
      DecodeRooms::Effects effects;
      w.jobs[at].stopped = true;
      w.decodes[static_cast<size_t>(w.DecodeOf(a.at))].Abort(w.jobs[at].room, effects);
      return w.Take(w.DecodeOf(a.at), effects);
    }
    case What::kDiePrefill:
      return DiePrefill(w, a.at);
    case What::kDieDecode:
      return DieDecode(w, a.at);
    case What::kExpire:
      return ExpireAll(w);
  }
}

}  // namespace braid::handoff
