// How the weights of experts get from one placement to the next. Every rank derives the same plan
// from the two placements, so senders and receivers agree without a message. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "experts/expert_map.h"

namespace braid {

enum class MoveKind : uint8_t {
  kUnchanged,
  kSameRank,    // from another slot of the rank
  kOwnReceive,  // another slot of the rank receives the expert: from there
  kSameNode,    // from a rank of the node
  kOtherNode,
};
inline bool Travels(MoveKind kind) { return kind >= MoveKind::kSameNode; }

// Of one slot. `source` is a slot of the current placement; of the next one for kOwnReceive.
struct SlotMove {
  int32_t slot = 0;
  int32_t source = 0;
  int32_t expert = 0;
  MoveKind kind = MoveKind::kUnchanged;
  bool operator==(const SlotMove&) const = default;
};

// A move per slot, in their order. A rank receives an expert once. Ranks that need one from their
// node share the holders there evenly; the others share all holders evenly.
std::vector<SlotMove> MovesOf(const ExpertShape& shape, const LayerSlots& current,
                              const LayerSlots& next);

// Bytes [begin, end) of the weights in slot `source`, for slot `slot` of another rank.
struct MovePiece {
  int32_t layer = 0;
  int32_t slot = 0, source = 0;
  int64_t begin = 0, end = 0;
  auto operator<=>(const MovePiece&) const = default;
};

// Slots of one or more layers that change together: their new weights are in buffers before any
// slot is overwritten. The slots of a layer that need not change together change in several rounds,
// so that the step before which slots are overwritten takes little longer than others.
struct MoveRound {
  std::vector<int32_t> layers;
  std::vector<LayerSlots> after;              // each of the layers after the round
  std::vector<std::vector<SlotMove>> moves;   // of each of the layers
  std::vector<std::vector<MovePiece>> steps;  // pieces that travel during each step
};

struct MoveLimits {
  std::vector<int64_t> slot_bytes;  // of a slot's weights, by layer
  int64_t buffer_bytes = 0;         // of a rank
  // That a rank sends in a step, receives in a step and overwrites between two steps; if slots that
  // have to change together are more, it overwrites these.
  int64_t step_bytes = 0;
  int64_t header_bytes = 0;  // that travel with each piece and count; fewer than step_bytes
};

// All changes from `current` to `next` (by layer). The error says how large the buffer must be.
Result<std::vector<MoveRound>> RoundsOf(const ExpertShape& shape,
                                        const std::vector<LayerSlots>& current,
                                        const std::vector<LayerSlots>& next,
                                        const MoveLimits& limits);

}  // namespace braid
