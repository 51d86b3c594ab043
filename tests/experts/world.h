// Ranks whose experts are bytes, in one or two groups that hold all experts each, and the network
// between them, which can be made to fail. After every step all live slots must hold what the
// placement says, on every rank the same, and every rank's choice of a replica must lead to the
// expert. One thread; a seed decides all.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "experts/rebalance.h"

namespace braid {

enum class Fault : uint8_t {
  kNone,
  kLose,      // a piece
  kDelay,     // a piece, by up to twice the steps of a round
  kCorrupt,   // a byte of a piece
  kMislabel,  // a field of a piece's header
  kRepeat,    // a piece arrives twice
  kNoMemory,  // a rank cannot go on
  kKill,      // a rank
};
inline constexpr Fault kFaults[] = {Fault::kNone,     Fault::kLose,     Fault::kDelay,
                                    Fault::kCorrupt,  Fault::kMislabel, Fault::kRepeat,
                                    Fault::kNoMemory, Fault::kKill};

class World {
 public:
  explicit World(uint64_t seed);

  // Moves to a new placement, with the fault at step `when` of the moves (the first after it in
  // which pieces travel, for faults of pieces). The error names what is wrong with the world; a
  // group that ended because a rank was killed is no error.
  Status Move(Fault fault, int32_t when);

  bool reached() const { return reached_; }  // the last placement that was wanted
  bool ended() const { return killed_.has_value(); }
  int32_t steps() const { return steps_; }  // of the last Move
  int64_t swaps() const { return ranks_.front().rebalance.epoch(); }

 private:
  struct Rank {
    Rebalance rebalance;
    std::vector<std::vector<std::vector<std::byte>>> live;  // [layer][slot of the rank]
    std::map<std::pair<int32_t, int32_t>, std::vector<std::byte>> buffers = {};  // (layer, slot)
    int64_t buffer_bytes = 0;
    bool no_memory = false;
    std::optional<MoveStep> work = {};  // that its thread has taken up and not done
  };
  struct Message {
    int64_t due = 0;
    int32_t group = 0;
    PieceHeader header;
    std::vector<std::byte> bytes;
  };

  std::vector<LayerSlots> DrawPlacement();
  std::vector<std::byte> WeightsOf(int32_t layer, int32_t expert) const;
  // That has a slot of a group's.
  Rank& RankOf(int32_t group, int32_t slot);
  std::vector<std::byte>& Live(Rank& rank, int32_t layer, int32_t slot) const;
  Result<std::vector<std::byte>*> BufferOf(Rank& rank, int32_t layer, int32_t slot) const;
  Status RunStep(Fault fault);
  Status Work(Rank& rank, int32_t number);
  Status Send(int32_t number, const MoveStep& work);
  void Disturb(Fault fault, std::vector<Message>& sent);
  Status Deliver();
  Status CheckSwap(const std::vector<LayerSlots>& before) const;
  Status ApplyVotes();
  Status Check() const;
  Status CheckChoices(int32_t layer, const LayerSlots& slots) const;

  Rng rng_;
  ExpertShape shape_;
  MoveLimits limits_;
  int32_t round_steps_max_ = 0;
  std::vector<Rank> ranks_;  // of all groups
  std::vector<Message> network_;
  std::set<std::tuple<int32_t, int32_t, int32_t, int64_t>> travelled_;  // in this round
  std::optional<int32_t> killed_;
  int64_t clock_ = 0;
  int32_t steps_ = 0;
  bool reached_ = false, disturbed_ = false;
  bool damaged_ = false;  // a piece of this step
};

}  // namespace braid
