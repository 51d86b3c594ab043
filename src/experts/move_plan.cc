// Sources of moves, and their division into rounds and steps.
#include "experts/move_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace braid {
namespace {

// `receivers` in order take the `holders` in equal runs.
void Share(std::span<const int32_t> receivers, std::span<const int32_t> holders, MoveKind kind,
           std::vector<SlotMove>& moves) {
  for (size_t i = 0; i < receivers.size(); ++i) {
    SlotMove& move = moves[static_cast<size_t>(receivers[i])];
    move.kind = kind;
    move.source = holders[i * holders.size() / receivers.size()];
  }
}

// The first slot of each rank that holds the expert.
std::vector<int32_t> HoldersOf(const ExpertShape& shape, std::span<const int32_t> replicas) {
  std::vector<int32_t> holders;
  for (const int32_t slot : replicas) {
    if (holders.empty() || shape.RankOf(holders.back()) != shape.RankOf(slot)) {
      holders.push_back(slot);
    }
  }
  return holders;
}

void MovesOfExpert(const ExpertShape& shape, std::span<const int32_t> before,
                   std::span<const int32_t> after, std::vector<SlotMove>& moves) {
  const std::vector<int32_t> holders = HoldersOf(shape, before);
  std::vector<int32_t> receivers;  // a slot of each rank that has to receive
  for (const int32_t slot : after) {
    SlotMove& move = moves[static_cast<size_t>(slot)];
    const int32_t rank = shape.RankOf(slot);
    const auto here = std::ranges::find(holders, rank, [&](int32_t s) { return shape.RankOf(s); });
    if (std::ranges::find(before, slot) != before.end()) {
      move.source = slot;
    } else if (here != holders.end()) {
      move.kind = MoveKind::kSameRank;
      move.source = *here;
    } else if (!receivers.empty() && shape.RankOf(receivers.back()) == rank) {
      move.kind = MoveKind::kOwnReceive;
      move.source = receivers.back();
    } else {
      receivers.push_back(slot);
    }
  }
  const auto node_of = [&](int32_t slot) { return shape.NodeOf(shape.RankOf(slot)); };
  std::vector<int32_t> far;
  for (size_t begin = 0; begin < receivers.size();) {
    const int32_t node = node_of(receivers[begin]);
    size_t end = begin;
    while (end < receivers.size() && node_of(receivers[end]) == node) ++end;
    const std::span<const int32_t> here(&receivers[begin], end - begin);
    std::vector<int32_t> near;
    for (const int32_t holder : holders) {
      if (node_of(holder) == node) near.push_back(holder);
    }
    if (near.empty()) {
      far.insert(far.end(), here.begin(), here.end());
    } else {
      Share(here, near, MoveKind::kSameNode, moves);
    }
    begin = end;
  }
  Share(far, holders, MoveKind::kOtherNode, moves);
}

// Bytes of buffers that each rank needs for a layer's moves.
std::vector<int64_t> BufferBytes(const ExpertShape& shape, const std::vector<SlotMove>& moves,
                                 int64_t slot_bytes) {
  std::vector<int64_t> bytes(static_cast<size_t>(shape.ranks));
  for (const SlotMove& move : moves) {
    const bool buffered = Travels(move.kind) || move.kind == MoveKind::kSameRank;
    if (buffered) bytes[static_cast<size_t>(shape.RankOf(move.slot))] += slot_bytes;
  }
  return bytes;
}

// Puts pieces into steps, each into the first in which both ranks may send and receive it.
class StepFiller {
 public:
  StepFiller(const ExpertShape& shape, const MoveLimits& limits)
      : shape_(shape), step_bytes_(limits.step_bytes), header_bytes_(limits.header_bytes) {}

  void Add(int32_t layer, const SlotMove& move, int64_t slot_bytes) {
    const int64_t most = step_bytes_ - header_bytes_;
    size_t step = 0;
    for (int64_t begin = 0; begin < slot_bytes; begin += most) {
      const int64_t end = std::min(slot_bytes, begin + most);
      // Where a piece did not fit, the next one of its size does not either.
      if (end - begin < most) step = 0;
      step = Add({layer, move.slot, move.source, begin, end}, step);
    }
  }
  std::vector<std::vector<MovePiece>> Take() {
    sent_.clear();
    received_.clear();
    return std::exchange(steps_, {});
  }

 private:
  // From step `step` on; returns the step.
  size_t Add(const MovePiece& piece, size_t step) {
    const int64_t bytes = piece.end - piece.begin + header_bytes_;
    const auto from = static_cast<size_t>(shape_.RankOf(piece.source));
    const auto to = static_cast<size_t>(shape_.RankOf(piece.slot));
    for (;; ++step) {
      if (step == steps_.size()) {
        steps_.emplace_back();
        sent_.emplace_back(static_cast<size_t>(shape_.ranks));
        received_.emplace_back(static_cast<size_t>(shape_.ranks));
      }
      if (sent_[step][from] + bytes > step_bytes_ || received_[step][to] + bytes > step_bytes_) {
        continue;
      }
      sent_[step][from] += bytes;
      received_[step][to] += bytes;
      steps_[step].push_back(piece);
      return step;
    }
  }

  const ExpertShape& shape_;
  const int64_t step_bytes_, header_bytes_;
  std::vector<std::vector<MovePiece>> steps_;
  std::vector<std::vector<int64_t>> sent_, received_;  // [step][rank]
};

// The slots of a layer that change next: whole groups of such as have to change together, because
// each needs the place of another. Of a rank at most `slots_max` where groups are no larger.
class Part {
 public:
  Part(const ExpertShape& shape, LayerSlots now, const LayerSlots& next)
      : shape_(shape),
        next_(next),
        after_(std::move(now)),
        held_(static_cast<size_t>(shape.experts)),
        changed_(static_cast<size_t>(shape.ranks)) {
    for (const int32_t expert : after_) ++held_[static_cast<size_t>(expert)];
  }

  LayerSlots Take(int64_t slots_max) {
    bool any = false;
    for (size_t slot = 0; slot < after_.size(); ++slot) {
      if (after_[slot] == next_[slot]) continue;
      const std::vector<std::pair<size_t, int32_t>> group = Change(slot);
      if (!any || std::ranges::max(changed_) <= slots_max) {
        any = true;
        continue;
      }
      for (const auto& [changed, before] : group) Set(changed, before, -1);
    }
    return after_;
  }

 private:
  void Set(size_t slot, int32_t expert, int64_t count) {
    --held_[static_cast<size_t>(after_[slot])];
    ++held_[static_cast<size_t>(expert)];
    after_[slot] = expert;
    changed_[static_cast<size_t>(shape_.RankOf(static_cast<int32_t>(slot)))] += count;
  }
  // Gives a slot its next expert; one that nothing holds then comes to the slot that will hold it,
  // and so on. Returns what the slots held.
  std::vector<std::pair<size_t, int32_t>> Change(size_t slot) {
    std::vector<std::pair<size_t, int32_t>> group;
    while (true) {
      const int32_t lost = after_[slot];
      group.emplace_back(slot, lost);
      Set(slot, next_[slot], 1);
      if (held_[static_cast<size_t>(lost)] > 0) return group;
      slot = static_cast<size_t>(std::ranges::find(next_, lost) - next_.begin());
    }
  }

  const ExpertShape& shape_;
  const LayerSlots& next_;
  LayerSlots after_;
  std::vector<int32_t> held_;     // slots of each expert
  std::vector<int64_t> changed_;  // slots of each rank
};

class RoundMaker {
 public:
  RoundMaker(const ExpertShape& shape, const MoveLimits& limits)
      : shape_(shape), limits_(limits), filler_(shape, limits) {}

  Status AddLayer(int32_t layer, LayerSlots now, const LayerSlots& next) {
    const int64_t slot_bytes = limits_.slot_bytes[static_cast<size_t>(layer)];
    while (now != next) {
      LayerSlots after = Part(shape_, now, next).Take(SlotsAtOnce(slot_bytes));
      std::vector<SlotMove> moves = MovesOf(shape_, now, after);
      const std::vector<int64_t> bytes = BufferBytes(shape_, moves, slot_bytes);
      const int64_t most = std::ranges::max(bytes);
      if (most > limits_.buffer_bytes) {
        return Error{ErrorCode::kExhausted,
                     fmt::format("moving the experts of layer {} needs a buffer of {} bytes on a "
                                 "rank; it has {}",
                                 layer, most, limits_.buffer_bytes)};
      }
      OpenRound(layer, ChangedBytes(now, after, slot_bytes));
      for (const SlotMove& move : moves) {
        if (Travels(move.kind)) filler_.Add(layer, move, slot_bytes);
      }
      rounds_.back().layers.push_back(layer);
      rounds_.back().after.push_back(after);
      rounds_.back().moves.push_back(std::move(moves));
      now = std::move(after);
    }
    return {};
  }
  std::vector<MoveRound> Take() {
    if (!rounds_.empty()) rounds_.back().steps = filler_.Take();
    return std::move(rounds_);
  }

 private:
  int64_t RoundBytes() const { return std::min(limits_.step_bytes, limits_.buffer_bytes); }
  int64_t SlotsAtOnce(int64_t slot_bytes) const {
    return std::max<int64_t>(1, RoundBytes() / slot_bytes);
  }
  std::vector<int64_t> ChangedBytes(const LayerSlots& now, const LayerSlots& after,
                                    int64_t slot_bytes) const {
    std::vector<int64_t> bytes(static_cast<size_t>(shape_.ranks));
    for (size_t slot = 0; slot < now.size(); ++slot) {
      if (now[slot] == after[slot]) continue;
      bytes[static_cast<size_t>(shape_.RankOf(static_cast<int32_t>(slot)))] += slot_bytes;
    }
    return bytes;
  }

  // The last round, if it does not change the layer and has room; else a new one.
  void OpenRound(int32_t layer, const std::vector<int64_t>& bytes) {
    const auto full = [&](size_t r) { return used_[r] + bytes[r] > RoundBytes(); };
    bool fits = !rounds_.empty() && rounds_.back().layers.back() != layer;
    for (size_t r = 0; fits && r < bytes.size(); ++r) fits = !full(r);
    if (!fits) {
      if (!rounds_.empty()) rounds_.back().steps = filler_.Take();
      rounds_.emplace_back();
      used_.assign(bytes.size(), 0);
    }
    for (size_t r = 0; r < bytes.size(); ++r) used_[r] += bytes[r];
  }

  const ExpertShape& shape_;
  const MoveLimits& limits_;
  StepFiller filler_;
  std::vector<MoveRound> rounds_;
  std::vector<int64_t> used_;  // bytes of each rank that change in the last round
};

}  // namespace

std::vector<SlotMove> MovesOf(const ExpertShape& shape, const LayerSlots& current,
                              const LayerSlots& next) {
  const Replicas before(shape, current), after(shape, next);
  std::vector<SlotMove> moves(next.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    moves[i] = {.slot = static_cast<int32_t>(i), .expert = next[i]};
  }
  for (int32_t e = 0; e < shape.experts; ++e) {
    MovesOfExpert(shape, before.Of(e), after.Of(e), moves);
  }
  return moves;
}

Result<std::vector<MoveRound>> RoundsOf(const ExpertShape& shape,
                                        const std::vector<LayerSlots>& current,
                                        const std::vector<LayerSlots>& next,
                                        const MoveLimits& limits) {
  CHECK(current.size() == next.size() && limits.slot_bytes.size() == next.size());
  CHECK(limits.header_bytes >= 0 && limits.header_bytes < limits.step_bytes);
  RoundMaker maker(shape, limits);
  for (size_t layer = 0; layer < next.size(); ++layer) {
    RETURN_IF_ERROR(maker.AddLayer(static_cast<int32_t>(layer), current[layer], next[layer]));
  }
  return maker.Take();
}

}  // namespace braid
