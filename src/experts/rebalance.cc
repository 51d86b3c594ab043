// The state machine of one rank.
#include "experts/rebalance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"

namespace braid {

uint64_t ChecksumOf(const PieceHeader& header, std::span<const std::byte> bytes) {
  uint64_t sum = bytes.size();
  const auto add = [&sum](uint64_t word) { sum = MixBits(sum * 0x9e3779b97f4a7c15ull + word); };
  for (const int64_t field : {header.attempt, int64_t{header.layer}, int64_t{header.slot},
                              int64_t{header.expert}, header.begin, header.end}) {
    add(static_cast<uint64_t>(field));
  }
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, &bytes[at], std::min(sizeof(word), bytes.size() - at));
    add(word);
  }
  return sum;
}

Rebalance::Rebalance(const ExpertShape& shape, int32_t rank, std::vector<LayerSlots> placement,
                     MoveLimits limits, int32_t round_steps_max)
    : shape_(shape),
      rank_(rank),
      limits_(std::move(limits)),
      round_steps_max_(round_steps_max),
      placement_(std::move(placement)) {
  for (const LayerSlots& slots : placement_) {
    const Status status = CheckSlots(shape_, slots);
    CHECK(status, "{}", status.error().message);
  }
}

Status Rebalance::Begin(std::vector<LayerSlots> next) {
  CHECK(!moving());
  for (const LayerSlots& slots : next) RETURN_IF_ERROR(CheckSlots(shape_, slots));
  ASSIGN_OR_RETURN(rounds_, RoundsOf(shape_, placement_, next, limits_));
  next_ = std::move(next);
  if (moving()) StartRound();
  return {};
}

void Rebalance::StartRound() {
  ++attempt_;
  step_ = 0;
  waited_ = 0;
  failure_.clear();
  expected_.clear();
  for (const std::vector<MovePiece>& pieces : round().steps) {
    for (const MovePiece& piece : pieces) {
      if (shape_.RankOf(piece.slot) == rank_) expected_.push_back(piece);
    }
  }
  std::ranges::sort(expected_);
}

MoveStep Rebalance::NextStep() const {
  MoveStep work;
  if (!moving()) return work;
  if (step_ == 0) {
    for (size_t i = 0; i < round().layers.size(); ++i) {
      for (const SlotMove& move : round().moves[i]) {
        if (move.kind == MoveKind::kSameRank && shape_.RankOf(move.slot) == rank_) {
          work.stage.push_back({round().layers[i], move.source, move.slot});
        }
      }
    }
  }
  if (step_ < round().steps.size()) {
    for (const MovePiece& piece : round().steps[step_]) {
      if (shape_.RankOf(piece.source) == rank_) work.sends.push_back(piece);
    }
  }
  return work;
}

void Rebalance::EndStep() {
  if (moving()) ++step_;
}

PieceHeader Rebalance::HeaderOf(const MovePiece& piece, std::span<const std::byte> bytes) const {
  PieceHeader header = Describe(piece);
  header.checksum = ChecksumOf(header, bytes);
  return header;
}

PieceHeader Rebalance::Describe(const MovePiece& piece) const {
  const LayerSlots& slots = placement_[static_cast<size_t>(piece.layer)];
  return {.attempt = attempt_,
          .layer = piece.layer,
          .slot = piece.slot,
          .expert = slots[static_cast<size_t>(piece.source)],
          .begin = piece.begin,
          .end = piece.end};
}

bool Rebalance::Receive(const PieceHeader& header, uint64_t checksum) {
  if (!moving()) return false;
  if (header.checksum != checksum) {
    Fail(fmt::format("a piece for slot {} of layer {} arrived with a wrong checksum", header.slot,
                     header.layer));
    return false;
  }
  if (header.attempt != attempt_) return false;  // of a round that is over
  const auto piece = std::ranges::find_if(expected_, [&](const MovePiece& p) {
    return p.layer == header.layer && p.slot == header.slot && p.begin == header.begin &&
           p.end == header.end;
  });
  if (piece == expected_.end()) return false;  // it came before
  const int32_t expert = next_[static_cast<size_t>(header.layer)][static_cast<size_t>(header.slot)];
  if (header.expert != expert) {
    Fail(fmt::format("expert {} arrived for slot {} of layer {}, which will hold {}", header.expert,
                     header.slot, header.layer, expert));
    return false;
  }
  expected_.erase(piece);
  return true;
}

void Rebalance::Fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
}

MoveVote Rebalance::vote() const {
  if (!moving()) return MoveVote::kBusy;
  if (!failure_.empty()) return MoveVote::kFailed;
  const bool done = step_ >= std::max(round().steps.size(), size_t{1});
  return done && expected_.empty() ? MoveVote::kReady : MoveVote::kBusy;
}

MoveChange Rebalance::Apply(std::span<const MoveVote> votes) {
  CHECK(!votes.empty() && std::ssize(votes) % shape_.ranks == 0, "{} votes", votes.size());
  MoveChange change;
  if (!moving()) return change;
  ++waited_;
  const bool failed = std::ranges::find(votes, MoveVote::kFailed) != votes.end();
  const bool ready = std::ranges::count(votes, MoveVote::kReady) == std::ssize(votes);
  if (failed || (!ready && waited_ >= round_steps_max_)) {
    change.kind = MoveChange::kDrop;
    rounds_.clear();
    return change;
  }
  if (!ready) return change;
  change.kind = MoveChange::kSwap;
  for (size_t i = 0; i < round().layers.size(); ++i) {
    const int32_t layer = round().layers[i];
    for (const SlotMove& move : round().moves[i]) {
      if (move.kind == MoveKind::kUnchanged || shape_.RankOf(move.slot) != rank_) continue;
      const bool own = move.kind == MoveKind::kOwnReceive;
      change.copies.push_back({layer, own ? move.source : move.slot, move.slot});
    }
    placement_[static_cast<size_t>(layer)] = round().after[i];
  }
  ++epoch_;
  rounds_.erase(rounds_.begin());
  if (moving()) StartRound();
  return change;
}

}  // namespace braid
