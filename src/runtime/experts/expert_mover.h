// Moves experts to other slots while the group serves (experts/rebalance.h): one rank's part. A
// thread of its own exchanges pieces of weights with the other ranks' threads, as many bytes for
// each step of the engine as the limit allows, through buffers that the memory plan counted. The
// engine thread votes with every step's exchange and swaps between two steps, when all are ready.
//
// Every rank makes the same calls in the same order, so all threads exchange the same pieces, also
// those of a round that was dropped meanwhile: nobody ever waits for a message that is not sent.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/system/thread_pool.h"
#include "comm/communicator.h"
#include "comm/step_times.h"
#include "experts/rebalance.h"
#include "model/spec.h"
#include "model/weights.h"
#include "runtime/experts/expert_slots.h"

namespace braid {

struct MoveProgress {
  int64_t begun = 0, done = 0, dropped = 0;  // placements
  int64_t swaps = 0;                         // rounds
  int64_t bytes = 0;                         // that this rank received
  int64_t cpu_ns = 0;                        // that this rank's thread has computed for moves
  bool moving = false;
  std::string failure;  // of the last one that was dropped, as far as this rank knows
};

struct MoverLimits {
  int64_t step_bytes = int64_t{1} << 20;  // sent and received, with the headers of pieces
  int32_t round_steps_max = 1 << 16;      // a round that takes longer is dropped
};

// Of a mover, which may be null, for StepTimes.
class ExpertMover;
BesideStep BesideStepOf(const ExpertMover* mover);

class ExpertMover {
 public:
  struct Parts {
    const ModelSpec& spec;
    ModelWeights& weights;
    const ExpertSlots& slots;     // where the experts lie at first
    Communicator& group;          // of the ranks that share experts; nobody else uses it
    RankCounts* loads = nullptr;  // null: nobody counts
    int32_t rank = 0;             // among all; the first writes what all know to the log
    MoverLimits limits;
  };
  // What `parts` refers to outlives the mover.
  explicit ExpertMover(const Parts& parts);
  ~ExpertMover();

  // Engine thread. At the beginning of a step: where the experts of each layer that has some are to
  // lie. Not while experts are moving: then nothing happens.
  void Begin(const std::vector<LayerSlots>& next);
  // Once for each step, before its end: another step's bytes may travel.
  void Step();
  MoveVote vote() const;
  // The votes of all ranks, after the step's exchange: all groups that share experts swap between
  // the same two steps.
  void Apply(std::span<const MoveVote> votes, ThreadPool& pool);
  // Of each layer that has experts.
  std::vector<LayerSlots> placement() const;

  MoveProgress progress() const;  // any thread

  // Bytes of the buffer: the largest layer's experts on this rank. Messages take twice `step_bytes`
  // beside it.
  static int64_t BufferBytes(const ModelSpec& spec, const ModelWeights& weights);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
