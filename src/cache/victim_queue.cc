// A heap that knows where each of its members is; see the header. Engine thread.
#include "cache/victim_queue.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace braid {
namespace {

constexpr size_t kChildren = 4;

size_t Parent(size_t at) { return (at - 1) / kChildren; }

}  // namespace

std::strong_ordering VictimQueue::Rank::operator<=>(const Rank& other) const {
  return std::tie(tier, epoch, depth, part, node.value) <=>
         std::tie(other.tier, other.epoch, other.depth, other.part, other.node.value);
}

const VictimQueue::Rank* VictimQueue::Find(PrefixNodeId node, GroupKind part) const {
  const size_t index = PlaceIndex(node, part);
  if (index >= places_.size() || places_[index] < 0) return nullptr;
  return &heap_[static_cast<size_t>(places_[index])];
}

void VictimQueue::Put(size_t at, const Rank& rank) {
  heap_[at] = rank;
  places_[PlaceIndex(rank.node, rank.part)] = static_cast<int32_t>(at);
}

void VictimQueue::SiftUp(size_t at, const Rank& rank) {
  for (; at > 0 && rank < heap_[Parent(at)]; at = Parent(at)) Put(at, heap_[Parent(at)]);
  Put(at, rank);
}

void VictimQueue::SiftDown(size_t at, const Rank& rank) {
  while (at * kChildren + 1 < heap_.size()) {
    const size_t first = at * kChildren + 1;
    const size_t end = std::min(first + kChildren, heap_.size());
    size_t least = first;
    for (size_t child = first + 1; child < end; ++child) {
      if (heap_[child] < heap_[least]) least = child;
    }
    if (rank < heap_[least]) break;
    Put(at, heap_[least]);
    at = least;
  }
  Put(at, rank);
}

void VictimQueue::Insert(const Rank& rank) {
  const size_t index = PlaceIndex(rank.node, GroupKind::kState);
  if (index >= places_.size()) places_.resize(index + 1, -1);
  CHECK(Find(rank.node, rank.part) == nullptr, "a part is filed twice");
  heap_.emplace_back();
  SiftUp(heap_.size() - 1, rank);
}

void VictimQueue::Erase(PrefixNodeId node, GroupKind part) {
  const Rank* filed = Find(node, part);
  CHECK(filed != nullptr, "a part that is not filed is erased");
  const size_t at = static_cast<size_t>(filed - heap_.data());
  places_[PlaceIndex(node, part)] = -1;
  const Rank last = heap_.back();
  heap_.pop_back();
  if (at == heap_.size()) return;
  if (at > 0 && last < heap_[Parent(at)]) {
    SiftUp(at, last);
  } else {
    SiftDown(at, last);
  }
}

}  // namespace braid
