// The ranks, the network and what must hold.
#include "tests/experts/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "experts/placement.h"

namespace braid {
namespace {

Error Wrong(std::string what) { return {ErrorCode::kInternal, std::move(what)}; }

}  // namespace

World::World(uint64_t seed) : rng_(seed) {
  shape_.ranks_per_node = static_cast<int32_t>(1 + rng_.Below(3));
  shape_.ranks = shape_.ranks_per_node * static_cast<int32_t>(1 + rng_.Below(3));
  const int32_t slots = shape_.ranks * static_cast<int32_t>(1 + rng_.Below(4));
  shape_.redundant = static_cast<int32_t>(rng_.Below(slots / 2 + 1));
  shape_.experts = slots - shape_.redundant;
  const auto layers = static_cast<size_t>(1 + rng_.Below(4));
  const bool alike = rng_.Below(2) == 0;
  for (size_t i = 0; i < layers; ++i) {
    limits_.slot_bytes.push_back(i > 0 && alike ? limits_.slot_bytes[0] : 8 + rng_.Below(60));
  }
  const int64_t largest = std::ranges::max(limits_.slot_bytes);
  limits_.header_bytes = rng_.Below(4);
  limits_.step_bytes = limits_.header_bytes + 4 + rng_.Below(2 * largest);
  limits_.buffer_bytes = largest * shape_.slots_per_rank() * (1 + rng_.Below(3));
  round_steps_max_ = 400;
  const std::vector<LayerSlots> placement = DrawPlacement();
  const auto all = shape_.ranks * static_cast<int32_t>(1 + rng_.Below(2));
  for (int32_t number = 0; number < all; ++number) {
    const int32_t r = number % shape_.ranks;
    Rank rank{.rebalance = Rebalance(shape_, r, placement, limits_, round_steps_max_), .live = {}};
    for (size_t layer = 0; layer < layers; ++layer) {
      auto& slots_here = rank.live.emplace_back();
      for (int32_t i = 0; i < shape_.slots_per_rank(); ++i) {
        const auto slot = static_cast<size_t>(r * shape_.slots_per_rank() + i);
        slots_here.push_back(WeightsOf(static_cast<int32_t>(layer), placement[layer][slot]));
      }
    }
    ranks_.push_back(std::move(rank));
  }
}

std::vector<std::byte> World::WeightsOf(int32_t layer, int32_t expert) const {
  std::vector<std::byte> bytes(static_cast<size_t>(limits_.slot_bytes[static_cast<size_t>(layer)]));
  const auto key = static_cast<uint64_t>(layer * 1000 + expert);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(RandomBits(key, i));
  return bytes;
}

// Any placement: by random loads, or slots shuffled, with layers that stay.
std::vector<LayerSlots> World::DrawPlacement() {
  std::vector<LayerSlots> placement;
  for (size_t layer = 0; layer < limits_.slot_bytes.size(); ++layer) {
    if (!ranks_.empty() && rng_.Below(4) == 0) {
      placement.push_back(ranks_.front().rebalance.placement()[layer]);
      continue;
    }
    std::vector<double> loads;
    for (int32_t e = 0; e < shape_.experts; ++e) {
      loads.push_back(static_cast<double>(rng_.Below(100)));
    }
    LayerSlots slots = PlaceGlobal(shape_, loads);
    if (rng_.Below(2) == 0) {
      for (size_t i = slots.size() - 1; i > 0; --i) {
        std::swap(slots[i], slots[static_cast<size_t>(rng_.Below(static_cast<int64_t>(i) + 1))]);
      }
    }
    placement.push_back(std::move(slots));
  }
  return placement;
}

World::Rank& World::RankOf(int32_t group, int32_t slot) {
  return ranks_[static_cast<size_t>(group * shape_.ranks + shape_.RankOf(slot))];
}

std::vector<std::byte>& World::Live(Rank& rank, int32_t layer, int32_t slot) const {
  return rank.live[static_cast<size_t>(layer)][static_cast<size_t>(slot % shape_.slots_per_rank())];
}

Result<std::vector<std::byte>*> World::BufferOf(Rank& rank, int32_t layer, int32_t slot) const {
  auto& buffer = rank.buffers[{layer, slot}];
  if (buffer.empty()) {
    buffer.resize(static_cast<size_t>(limits_.slot_bytes[static_cast<size_t>(layer)]));
    rank.buffer_bytes += static_cast<int64_t>(buffer.size());
    if (rank.buffer_bytes > limits_.buffer_bytes) return Wrong("a rank's buffer is too small");
  }
  return &buffer;
}

Status World::Move(Fault fault, int32_t when) {
  const std::vector<LayerSlots> before = ranks_.front().rebalance.placement();
  const std::vector<LayerSlots> next = DrawPlacement();
  for (Rank& rank : ranks_) RETURN_IF_ERROR(rank.rebalance.Begin(next));
  disturbed_ = fault == Fault::kNone;
  const int32_t most = 2 * round_steps_max_ * static_cast<int32_t>(next.size());
  for (steps_ = 0; ranks_.front().rebalance.moving(); ++steps_) {
    if (steps_ > most) return Wrong(fmt::format("the moves do not end within {} steps", most));
    RETURN_IF_ERROR(RunStep(steps_ >= when && !disturbed_ ? fault : Fault::kNone));
    if (killed_) return {};
  }
  const std::vector<LayerSlots>& after = ranks_.front().rebalance.placement();
  for (size_t layer = 0; layer < after.size(); ++layer) {
    for (size_t slot = 0; slot < after[layer].size(); ++slot) {
      const int32_t expert = after[layer][slot];
      if (expert == before[layer][slot] || expert == next[layer][slot]) continue;
      return Wrong(fmt::format("a slot of layer {} is neither as before nor as wanted", layer));
    }
  }
  reached_ = after == next;
  const bool harmless = fault == Fault::kNone || fault == Fault::kRepeat;
  if (harmless && !reached_) {
    for (const Rank& rank : ranks_) {
      if (!rank.rebalance.failure().empty()) return Wrong(rank.rebalance.failure());
    }
    return Wrong("a move without a fault was dropped");
  }
  return {};
}

Status World::RunStep(Fault fault) {
  ++clock_;
  RETURN_IF_ERROR(Check());  // the step computes with the placement in force
  damaged_ = false;
  const auto any = static_cast<size_t>(rng_.Below(std::ssize(ranks_)));
  if (fault == Fault::kNoMemory) {
    ranks_[any].rebalance.Fail("no memory");
    ranks_[any].no_memory = true;
    disturbed_ = true;
  }
  const size_t before = network_.size();
  for (int32_t r = 0; r < std::ssize(ranks_); ++r) {
    RETURN_IF_ERROR(Work(ranks_[static_cast<size_t>(r)], r));
  }
  std::vector<Message> sent(
      std::make_move_iterator(network_.begin() + static_cast<ptrdiff_t>(before)),
      std::make_move_iterator(network_.end()));
  network_.resize(before);
  if (!sent.empty()) Disturb(fault, sent);
  for (Message& message : sent) network_.push_back(std::move(message));
  RETURN_IF_ERROR(Deliver());
  if (fault == Fault::kKill) {
    killed_ = static_cast<int32_t>(any);  // its vote is missing: the exchange ends the group
    return Check();
  }
  return ApplyVotes();
}

// A rank's thread takes up what a step brings, and is done before the step ends or later.
Status World::Work(Rank& rank, int32_t number) {
  if (!rank.work) rank.work = rank.rebalance.NextStep();
  if (rng_.Below(4) == 0) return {};
  RETURN_IF_ERROR(Send(number, *rank.work));
  rank.work.reset();
  rank.rebalance.EndStep();
  return {};
}

Status World::Send(int32_t number, const MoveStep& work) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const int32_t group = number / shape_.ranks;
  for (const SlotCopy& copy : work.stage) {
    if (rank.no_memory) break;
    ASSIGN_OR_RETURN(auto* buffer, BufferOf(rank, copy.layer, copy.to));
    *buffer = Live(rank, copy.layer, copy.from);
  }
  int64_t bytes_sent = 0;
  for (const MovePiece& piece : work.sends) {
    if (shape_.RankOf(piece.source) != number % shape_.ranks) {
      return Wrong("a rank sends another's weights");
    }
    const std::vector<std::byte>& live = Live(rank, piece.layer, piece.source);
    Message message{.due = clock_,
                    .group = group,
                    .header = {},
                    .bytes = {live.begin() + piece.begin, live.begin() + piece.end}};
    message.header = rank.rebalance.HeaderOf(piece, message.bytes);
    bytes_sent += piece.end - piece.begin + limits_.header_bytes;
    const int32_t to = group * shape_.ranks + shape_.RankOf(piece.slot);
    if (!travelled_.emplace(piece.layer, to, message.header.expert, piece.begin).second) {
      return Wrong(fmt::format("rank {} receives expert {} twice", to, message.header.expert));
    }
    network_.push_back(std::move(message));
  }
  if (bytes_sent > limits_.step_bytes) return Wrong("a rank sends more than a step allows");
  return {};
}

void World::Disturb(Fault fault, std::vector<Message>& sent) {
  const auto at = static_cast<size_t>(rng_.Below(static_cast<int64_t>(sent.size())));
  Message& message = sent[at];
  disturbed_ = disturbed_ || fault != Fault::kNone;
  damaged_ = fault == Fault::kCorrupt || fault == Fault::kMislabel;
  const auto byte = [&] { return static_cast<std::byte>(1 + rng_.Below(255)); };
  switch (fault) {
    case Fault::kLose:
      sent.erase(sent.begin() + static_cast<ptrdiff_t>(at));
      break;
    case Fault::kDelay:
      message.due += 1 + rng_.Below(2 * round_steps_max_);
      break;
    case Fault::kCorrupt:
      message.bytes[static_cast<size_t>(rng_.Below(static_cast<int64_t>(message.bytes.size())))] ^=
          byte();
      break;
    case Fault::kMislabel:
      switch (rng_.Below(5)) {
        case 0:
          message.header.expert ^= 1;
          break;
        case 1:
          message.header.attempt ^= 1;
          break;
        case 2:
          message.header.begin ^= 1;
          break;
        case 3:  // the labels of two pieces change places, if there are two
          damaged_ = false;
          for (Message& other : sent) {
            PieceHeader &a = message.header, &b = other.header;
            if (&a == &b || message.group != other.group) continue;
            if (a.begin != b.begin || a.end != b.end) continue;
            std::swap(a.layer, b.layer);
            std::swap(a.slot, b.slot);
            std::swap(a.expert, b.expert);
            damaged_ = true;
            break;
          }
          break;
        default:
          message.header.slot = (message.header.slot + 1) % shape_.slots();
      }
      break;
    case Fault::kRepeat: {
      Message again = message;
      again.due += rng_.Below(10);
      sent.push_back(std::move(again));
      break;
    }
    case Fault::kNone:
    case Fault::kNoMemory:
    case Fault::kKill:
      break;
  }
}

Status World::Deliver() {
  std::vector<Message> due;
  std::erase_if(network_, [&](Message& message) {
    if (message.due > clock_) return false;
    due.push_back(std::move(message));
    return true;
  });
  for (size_t i = due.size(); i > 1; --i) {
    std::swap(due[i - 1], due[static_cast<size_t>(rng_.Below(static_cast<int64_t>(i)))]);
  }
  for (const Message& message : due) {
    const PieceHeader& header = message.header;
    Rank& rank = RankOf(message.group, header.slot);
    if (!rank.rebalance.Receive(header, message.bytes)) continue;
    if (rank.no_memory) continue;
    ASSIGN_OR_RETURN(auto* buffer, BufferOf(rank, header.layer, header.slot));
    std::ranges::copy(message.bytes, buffer->begin() + header.begin);
  }
  return {};
}

// A rank overwrites no more bytes between two steps than it sends in one, but for one slot, or
// those of a layer that have to change together: all but one receive an expert that no other slot
// has.
Status World::CheckSwap(const std::vector<LayerSlots>& before) const {
  const std::vector<LayerSlots>& after = ranks_.front().rebalance.placement();
  std::vector<int64_t> bytes(ranks_.size());
  size_t layers = 0, others = 0;
  int64_t most = limits_.step_bytes;
  for (size_t layer = 0; layer < after.size(); ++layer) {
    const LayerSlots &was = before[layer], &is = after[layer];
    if (was == is) continue;
    ++layers;
    most = std::max(most, limits_.slot_bytes[layer]);
    for (size_t slot = 0; slot < is.size(); ++slot) {
      if (was[slot] == is[slot]) continue;
      bytes[static_cast<size_t>(shape_.RankOf(static_cast<int32_t>(slot)))] +=
          limits_.slot_bytes[layer];
      others += std::ranges::count(is, is[slot]) > 1;
    }
  }
  if (std::ranges::max(bytes) <= most || (layers == 1 && others <= 1)) return {};
  return Wrong("a rank overwrites too much at once");
}

Status World::ApplyVotes() {
  const std::vector<LayerSlots> before = ranks_.front().rebalance.placement();
  std::vector<MoveVote> votes;
  for (const Rank& rank : ranks_) votes.push_back(rank.rebalance.vote());
  std::set<MoveChange::Kind> kinds;
  for (Rank& rank : ranks_) {
    const MoveChange change = rank.rebalance.Apply(votes);
    kinds.insert(change.kind);
    for (const SlotCopy& copy : change.copies) {
      const auto buffer = rank.buffers.find({copy.layer, copy.from});
      if (buffer == rank.buffers.end()) return Wrong("a swap reads a buffer that nobody filled");
      Live(rank, copy.layer, copy.to) = buffer->second;
    }
    if (change.kind == MoveChange::kNone) continue;
    rank.buffers.clear();
    rank.buffer_bytes = 0;
    rank.no_memory = false;
    rank.work.reset();
    travelled_.clear();
  }
  if (kinds.size() != 1) return Wrong("ranks do different things at the end of a step");
  if (damaged_ && *kinds.begin() != MoveChange::kDrop) {
    return Wrong("a damaged piece has not ended its round");
  }
  RETURN_IF_ERROR(CheckSwap(before));
  return Check();
}

Status World::Check() const {
  const Rebalance& first = ranks_.front().rebalance;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    if (rank.rebalance.placement() != first.placement() ||
        rank.rebalance.epoch() != first.epoch()) {
      return Wrong(fmt::format("rank {} has another placement than rank 0", r));
    }
    for (size_t layer = 0; layer < rank.live.size(); ++layer) {
      const LayerSlots& slots = first.placement()[layer];
      for (size_t i = 0; i < rank.live[layer].size(); ++i) {
        const int32_t expert =
            slots[r % static_cast<size_t>(shape_.ranks) * rank.live[layer].size() + i];
        if (rank.live[layer][i] != WeightsOf(static_cast<int32_t>(layer), expert)) {
          return Wrong(fmt::format("slot {} of rank {} should hold expert {} of layer {}", i, r,
                                   expert, layer));
        }
      }
    }
  }
  for (size_t layer = 0; layer < first.placement().size(); ++layer) {
    RETURN_IF_ERROR(CheckChoices(static_cast<int32_t>(layer), first.placement()[layer]));
  }
  return {};
}

Status World::CheckChoices(int32_t layer, const LayerSlots& slots) const {
  const std::vector<int32_t> choices = ReplicaChoices(shape_, slots, static_cast<uint64_t>(layer));
  std::vector<int32_t> uses(slots.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto expert = static_cast<int32_t>(i) % shape_.experts;
    if (slots[static_cast<size_t>(choices[i])] != expert) {
      return Wrong(fmt::format("a rank sends tokens for expert {} elsewhere", expert));
    }
    ++uses[static_cast<size_t>(choices[i])];
  }
  // A replica is idle only if its rank has another one of the expert.
  for (int32_t s = 0; s < shape_.slots(); ++s) {
    const int32_t rank = shape_.RankOf(s), expert = slots[static_cast<size_t>(s)];
    const auto own = choices[static_cast<size_t>(rank * shape_.experts + expert)];
    if (shape_.RankOf(own) != rank) {
      return Wrong(fmt::format("rank {} does not use its own replica of expert {}", rank, expert));
    }
  }
  return {};
}

}  // namespace braid
