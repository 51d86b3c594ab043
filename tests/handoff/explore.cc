// The search: every action at every state that was not seen before, depth first. States are told
// apart by a hash of 128 bits of what the engines and the network hold. One thread.
#include "tests/handoff/explore.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "tests/handoff/world.h"

namespace braid::handoff {
namespace {

// What the system does by itself.
std::vector<Action> Steps(const World& w) {
  std::vector<Action> steps;
  for (size_t j = 0; j < w.jobs.size(); ++j) {
    if (!w.jobs[j].room.valid() && !w.jobs[j].over) {
      steps.push_back({What::kOpen, static_cast<int>(j)});
      break;
    }
  }
  for (size_t i = 0; i < w.letters.size(); ++i) {
    steps.push_back({What::kDeliver, static_cast<int>(i)});
  }
  for (size_t i = 0; i < w.writes.size(); ++i) {
    steps.push_back({What::kEndWrite, static_cast<int>(i)});
  }
  for (size_t i = 0; i < w.reads.size(); ++i) {
    steps.push_back({What::kEndRead, static_cast<int>(i)});
  }
  for (size_t p = 0; p < w.prefills.size(); ++p) {
    for (size_t i = 0; i < w.prefills[p].works.size(); ++i) {
      const Work& work = w.prefills[p].works[i];
      if (work.gone || work.pages_held) continue;
      const Action at{What::kHand, static_cast<int>(i), static_cast<int>(p)};
      if (work.sent == 0 && w.bounds->parts > 1) {
        if (!w.prefills[p].rooms.Open(work.key)) {
          steps.push_back({What::kFail, at.at, at.engine});
          continue;
        }
        steps.push_back({What::kEarly, at.at, at.engine});
        continue;
      }
      steps.push_back(at);
      if (work.aborted) steps.push_back({What::kFail, at.at, at.engine});
    }
  }
  for (size_t i = 0; i < w.dead.size(); ++i) steps.push_back({What::kNotice, static_cast<int>(i)});
  for (size_t i = 0; i < w.orphaned.size(); ++i) {
    steps.push_back({What::kOrphan, static_cast<int>(i)});
  }
  return steps;
}

void AddFaults(const World& w, std::vector<Action>& actions) {
  if (w.faults_left == 0) return;
  for (size_t i = 0; i < w.letters.size(); ++i) {
    const int at = static_cast<int>(i);
    actions.push_back({What::kLose, at});
    actions.push_back({What::kTwice, at});
    if (w.letters[i].to_decode && !w.letters[i].stray && w.bounds->prefills == 2)
      actions.push_back({What::kStray, at});
  }
  for (size_t i = 0; i < w.writes.size(); ++i) {
    actions.push_back({What::kDamage, static_cast<int>(i)});
  }
  for (size_t i = 0; i < w.reads.size(); ++i) {
    actions.push_back({What::kFailRead, static_cast<int>(i)});
  }
  for (size_t j = 0; j < w.jobs.size(); ++j) {
    if (w.jobs[j].room.valid() && !w.jobs[j].over && !w.jobs[j].stopped) {
      actions.push_back({What::kAbortJob, static_cast<int>(j)});
    }
  }
  for (size_t p = 0; p < w.prefills.size(); ++p) {
    for (size_t i = 0; i < w.prefills[p].works.size(); ++i) {
      const Work& work = w.prefills[p].works[i];
      if (work.gone || work.pages_held) continue;
      actions.push_back({What::kFailWork, static_cast<int>(i), static_cast<int>(p)});
    }
    actions.push_back({What::kDiePrefill, static_cast<int>(p)});
    actions.push_back({What::kLosePrefillPages, static_cast<int>(p)});
  }
  for (size_t d = 0; d < w.decodes.size(); ++d) {
    actions.push_back({What::kDieDecode, static_cast<int>(d)});
    actions.push_back({What::kLoseDecodePages, static_cast<int>(d)});
  }
  actions.push_back({What::kExpire});
}

// Nothing is left to happen: every room is over, and by deadlines only if a message was lost.
void CheckEnd(World& w) {
  const char* when =
      w.expired ? "although all deadlines have passed" : "and only a deadline ends it";
  if (!w.expired && w.silent) return;
  for (const DecodeRooms& rooms : w.decodes) {
    if (!rooms.rooms().empty()) w.Violate(fmt::format("a decode engine's room is stuck, {}", when));
  }
  for (const Prefill& prefill : w.prefills) {
    if (!prefill.rooms.rooms().empty()) {
      w.Violate(fmt::format("a prefill engine's room is stuck, {}", when));
    }
    for (const Work& work : prefill.works) {
      if (!work.gone) w.Violate(fmt::format("a prefill engine's pages leak, {}", when));
    }
  }
  for (const Job& job : w.jobs) {
    if (!job.over) w.Violate(fmt::format("a request waits for ever, {}", when));
    if (!job.arrived && !w.faulty) w.Violate("a request fails without a fault");
  }
}

// A prompt whose room is over is computed no further than it takes to hear of that.
void CheckAborted(World& w) {
  for (const Prefill& prefill : w.prefills) {
    for (const Work& work : prefill.works) {
      const bool computes = !work.gone && !work.pages_held;
      if (computes && !work.aborted && !prefill.rooms.Open(work.key)) {
        w.Violate("a prompt is computed that nobody wants");
      }
    }
  }
}

// Nobody waits for the other side with pages that are lost: the arena can be replaced.
void CheckLost(World& w) {
  for (size_t p = 0; p < w.prefills.size(); ++p) {
    for (const Work& work : w.prefills[p].works) {
      const bool reads = std::ranges::any_of(w.reads, [&](const Read& read) {
        return read.prefill == static_cast<int>(p) && read.key == work.key;
      });
      if (work.lost && work.pages_held && !reads) w.Violate("lost pages are held");
    }
  }
}

// The state as bytes, without the trail that led to it.
class Key {
 public:
  template <class T>
  void Add(T v) {
    const auto wide = static_cast<uint64_t>(v);
    a_ = MixBits(a_ + wide + 0x9e3779b97f4a7c15ull);
    b_ = MixBits(b_ ^ (wide * 0xda942042e4dd58b5ull + 1)) + a_;
  }
  void Add(const std::string& text) {
    Add(text.size());
    for (const char c : text) Add(c);
  }
  std::pair<uint64_t, uint64_t> value() const { return {a_, b_}; }

 private:
  uint64_t a_ = 1, b_ = 2;
};

uint64_t HashOf(const Letter& letter) {
  Key key;
  key.Add(letter.to);
  key.Add(letter.to_decode);
  key.Add(letter.content);
  key.Add(Encode(letter.message));
  return key.value().first;
}

std::pair<uint64_t, uint64_t> KeyOf(const World& w) {
  Key key;
  const auto sorted = [&](std::vector<uint64_t> hashes) {
    std::sort(hashes.begin(), hashes.end());
    key.Add(hashes.size());
    for (const uint64_t h : hashes) key.Add(h);
  };
  std::vector<uint64_t> hashes;
  for (const Letter& letter : w.letters) hashes.push_back(HashOf(letter));
  sorted(std::exchange(hashes, {}));
  for (const Write& x : w.writes) {
    Key one;
    for (const int64_t v : {int64_t{x.decode}, x.room.value, int64_t{x.part.index}, x.session.value,
                            static_cast<int64_t>(x.content)}) {
      one.Add(v);
    }
    hashes.push_back(one.value().first);
  }
  sorted(std::exchange(hashes, {}));
  for (const Read& x : w.reads) {
    Key one;
    for (const int64_t v :
         {int64_t{x.prefill}, x.key.room.value, x.key.session.value, int64_t{x.part.index}}) {
      one.Add(v);
    }
    hashes.push_back(one.value().first);
  }
  sorted(std::exchange(hashes, {}));
  for (const DecodeRooms& rooms : w.decodes) {
    key.Add(rooms.rooms().size());
    for (const auto& [id, room] : rooms.rooms()) {
      key.Add(id.value);
      key.Add(room.session.value);
      key.Add(room.result.has_value());
      key.Add(room.failure.error.empty() ? -1 : static_cast<int>(room.failure.cause));
      for (const auto& [part, state] : room.parts) key.Add(state);
    }
  }
  for (const Prefill& prefill : w.prefills) {
    key.Add(prefill.rooms.remembered());
    key.Add(prefill.rooms.rooms().size());
    for (const auto& [id, room] : prefill.rooms.rooms()) {
      key.Add(id.room.value);
      key.Add(id.session.value);
      key.Add(room.handed * 4 + room.taken * 2 + !room.error.empty());
      key.Add(room.reads);
    }
    key.Add(prefill.works.size());
    std::vector<uint64_t> works;
    for (const Work& work : prefill.works) {
      Key one;
      one.Add(work.request);
      one.Add(work.key.session.value);
      one.Add(work.sent * 16 + work.lost * 8 + work.aborted * 4 + work.pages_held * 2 + work.gone);
      works.push_back(one.value().first);
    }
    sorted(works);
  }
  for (const Job& job : w.jobs) {
    key.Add(job.room.value);
    key.Add(job.session.value);
    key.Add(job.lost * 8 + job.over * 4 + job.arrived * 2 + job.stopped);
    for (const uint64_t page : job.pages) key.Add(page);
  }
  for (const SessionId session : w.sessions) key.Add(session.value);
  for (const auto& [at, session] : w.dead) key.Add(session.value);
  for (const auto& [at, session] : w.orphaned) key.Add(session.value);
  key.Add(w.faults_left * 8 + w.silent * 4 + w.faulty * 2 + w.expired);
  return key.value();
}

struct PairHash {
  size_t operator()(const std::pair<uint64_t, uint64_t>& p) const { return p.first; }
};

World Start(const Bounds& bounds) {
  World first;
  first.bounds = &bounds;
  first.faults_left = bounds.faults;
  first.decodes.assign(static_cast<size_t>(bounds.decodes), DecodeRooms(DecodeLimits{}));
  first.prefills.resize(static_cast<size_t>(bounds.prefills));
  first.sessions.resize(static_cast<size_t>(bounds.prefills * bounds.decodes));
  first.jobs.resize(static_cast<size_t>(bounds.rooms));
  for (Job& job : first.jobs) job.pages.assign(static_cast<size_t>(bounds.parts), 0);
  for (int p = 0; p < bounds.prefills; ++p) {
    for (int d = 0; d < bounds.decodes; ++d) {
      first.ends_of.emplace_back(p, d);
      first.Connect(p, d);
    }
  }
  return first;
}

}  // namespace

Explored Explore(const Bounds& bounds) {
  Explored explored;
  World first = Start(bounds);
  std::unordered_set<std::pair<uint64_t, uint64_t>, PairHash> seen{KeyOf(first)};
  std::vector<World> stack;
  stack.push_back(std::move(first));
  while (!stack.empty() && explored.violation.empty()) {
    World world = std::move(stack.back());
    stack.pop_back();
    ++explored.states;
    std::vector<Action> actions = Steps(world);
    if (actions.empty()) {
      ++explored.ends;
      CheckEnd(world);
      if (world.violation.empty() && !world.expired) {
        // Deadlines pass; what they say is delivered.
        World after = world;
        after.expired = true;
        ExpireAll(after);
        if (seen.insert(KeyOf(after)).second) stack.push_back(std::move(after));
      }
      explored.violation = world.violation;
      if (!explored.violation.empty()) break;
    }
    AddFaults(world, actions);
    for (const Action& action : actions) {
      World next = world;
      Act(next, action);
      CheckAborted(next);
      CheckLost(next);
      if (!next.violation.empty()) {
        explored.violation = next.violation;
        break;
      }
      if (seen.insert(KeyOf(next)).second) stack.push_back(std::move(next));
    }
  }
  return explored;
}

}  // namespace braid::handoff
