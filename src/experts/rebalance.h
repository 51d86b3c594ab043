// One rank's part in changing a placement while the group serves. Two phases: what a round changes
// is received into buffers and verified while steps go on with the old placement; when every rank
// has voted that it is ready, all swap between the same two steps. Otherwise all drop the buffers
// and the old placement stays. Live slots are written by a swap only.
// Every rank calls Begin and Apply in the same order, Apply once a step with the same votes, those
// of all groups, so no rank swaps alone. NextStep gives what travels next, at a pace that may
// differ between ranks; the caller moves bytes and tells what arrived. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "experts/move_plan.h"

namespace braid {

// What a piece says about itself. An attempt is a round of a Begin: pieces that arrive after theirs
// was dropped do not count.
struct PieceHeader {
  int64_t attempt = 0;
  int32_t layer = 0;
  int32_t slot = 0;    // that it is for
  int32_t expert = 0;  // that the sender's slot holds
  int64_t begin = 0, end = 0;
  uint64_t checksum = 0;
  bool operator==(const PieceHeader&) const = default;
};
// Stands for a piece of a round that its sender has dropped. Zeros could be damage.
inline constexpr PieceHeader kDroppedPiece{.attempt = -1};
// Of the header's other fields and of the bytes.
uint64_t ChecksumOf(const PieceHeader& header, std::span<const std::byte> bytes);

enum class MoveVote : uint8_t { kBusy, kReady, kFailed };

// The weights in one place go to another, on this rank.
struct SlotCopy {
  int32_t layer = 0;
  int32_t from = 0, to = 0;
};

struct MoveStep {
  std::vector<SlotCopy> stage;   // from live slots into the buffers of slots
  std::vector<MovePiece> sends;  // from live slots, to the rank of piece.slot
};

struct MoveChange {
  enum Kind : uint8_t { kNone, kSwap, kDrop } kind = kNone;
  std::vector<SlotCopy> copies;  // kSwap: from buffers into live slots, before the next step
};

class Rebalance {
 public:
  // A round that is not ready after `round_steps_max` steps is dropped.
  Rebalance(const ExpertShape& shape, int32_t rank, std::vector<LayerSlots> placement,
            MoveLimits limits, int32_t round_steps_max);

  // Not while moving. An error, the same on every rank, if a layer's moves do not fit the buffer.
  Status Begin(std::vector<LayerSlots> next);
  bool moving() const { return !rounds_.empty(); }

  // What the rank does next; EndStep says that the copies are made and the pieces sent, of this
  // attempt. Until then a rank is not ready.
  MoveStep NextStep() const;
  void EndStep();
  PieceHeader HeaderOf(const MovePiece& piece, std::span<const std::byte> bytes) const;
  PieceHeader Describe(const MovePiece& piece) const;  // the same without the checksum
  // Something arrived. True: the bytes belong into the buffer of header.slot at header.begin. What
  // is damaged fails the round, also where it is the attempt.
  bool Receive(const PieceHeader& header, std::span<const std::byte> bytes) {
    return Receive(header, ChecksumOf(header, bytes));
  }
  bool Receive(const PieceHeader& header, uint64_t checksum);  // what ChecksumOf gives
  // The rank cannot go on: no memory, or its transport failed.
  void Fail(std::string why);

  MoveVote vote() const;
  // The votes of all ranks of all groups, at the end of the step.
  MoveChange Apply(std::span<const MoveVote> votes);

  const std::vector<LayerSlots>& placement() const { return placement_; }
  int64_t epoch() const { return epoch_; }                 // swaps so far
  const std::string& failure() const { return failure_; }  // this rank's, of the last round
  int64_t attempt() const { return attempt_; }
  const MoveRound& round() const { return rounds_.front(); }  // while moving

 private:
  void StartRound();

  const ExpertShape shape_;
  const int32_t rank_;
  const MoveLimits limits_;
  const int32_t round_steps_max_;
  std::vector<LayerSlots> placement_, next_;
  int64_t epoch_ = 0, attempt_ = 0;
  std::vector<MoveRound> rounds_;    // the first is under way
  size_t step_ = 0;                  // of the round: calls of EndStep
  int32_t waited_ = 0;               // calls of Apply, equally many on all ranks
  std::vector<MovePiece> expected_;  // by this rank, not received so far; sorted
  std::string failure_;
};

}  // namespace braid
