// What a rank computes in each step between its exchanges, for measurements: CPU time of the thread
// that runs the step, so neither waiting for other ranks nor other work on its core counts. Ranks
// that share cores so show what a group would wait for whose ranks have cores of their own.
//
// All but Take belongs to the thread that runs the rank's steps.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace braid {

// What was computed before an exchange of a group, of those that Timed has numbered; or before the
// step's end.
struct StepPart {
  static constexpr int32_t kEnd = -1;
  int32_t group = kEnd;
  int64_t cpu_ns = 0;
};

// The state of what else the rank does beside its steps (moves of experts), at a step's end.
struct BesideStep {
  int64_t ended = 0;  // how many moves have ended
  bool under_way = false;
  int64_t cpu_ns = 0;  // of its own thread, from the beginning
};

struct RankStep {
  int64_t tokens = 0;
  int64_t moves_before = 0;  // that had ended when the step began
  bool moving = false;       // something moved in the step
  int64_t beside_ns = 0;     // that the thread of moves computed in the meantime
  int64_t wall_ns = 0;
  std::vector<StepPart> parts;
};

class StepTimes {
 public:
  // The group, whose exchanges end a part. It lives no longer than the group and this object.
  std::unique_ptr<Communicator> Timed(Communicator& group, int32_t number);

  void Begin(int64_t tokens);
  void End(const BesideStep& beside);

  // Steps that have ended and were not taken yet, in order. Any thread.
  std::vector<RankStep> Take();

 private:
  class TimedGroup;
  void EndPart(int32_t group);
  void BeginPart();

  RankStep step_;
  bool open_ = false;
  int64_t part_from_ns_ = 0, step_from_ns_ = 0;
  BesideStep beside_;
  std::mutex mutex_;
  std::deque<RankStep> ended_;
};

// A step of a group: in every part all wait for the rank that takes longest.
struct GroupStep {
  int64_t tokens = 0;
  int64_t moves_before = 0;
  bool moving = false;
  int64_t cpu_ns = 0;           // of all parts
  int64_t beside_ns = 0;        // of the rank whose thread of moves took longest
  int64_t wall_ns = 0;          // of the rank that took longest
  std::vector<StepPart> parts;  // of the rank that took longest in each
};
// kInternal when the ranks have not exchanged alike.
Result<GroupStep> SlowestOf(std::span<const RankStep> ranks);

}  // namespace braid
