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

std::strong_ordering EvictionKey::operator<=>(const EvictionKey& other) const {
  return std::tie(tier, epoch, depth, part, node.value) <=>
         std::tie(other.tier, other.epoch, other.depth, other.part, other.node.value);
}

const EvictionKey* VictimQueue::Find(PrefixNodeId node, GroupKind part) const {
  const size_t index = PlaceIndex(node, part);
  if (index >= places_.size() || places_[index] < 0) return nullptr;
  return &heap_[static_cast<size_t>(places_[index])];
}

void VictimQueue::Put(size_t at, const EvictionKey& key) {
  heap_[at] = key;
  places_[PlaceIndex(key.node, key.part)] = static_cast<int32_t>(at);
}

void VictimQueue::SiftUp(size_t at, const EvictionKey& key) {
  for (; at > 0 && key < heap_[Parent(at)]; at = Parent(at)) Put(at, heap_[Parent(at)]);
  Put(at, key);
}

void VictimQueue::SiftDown(size_t at, const EvictionKey& key) {
  while (at * kChildren + 1 < heap_.size()) {
    const size_t first = at * kChildren + 1;
    const size_t end = std::min(first + kChildren, heap_.size());
    size_t least = first;
    for (size_t child = first + 1; child < end; ++child) {
      if (heap_[child] < heap_[least]) least = child;
    }
    if (key < heap_[least]) break;
    Put(at, heap_[least]);
    at = least;
  }
  Put(at, key);
}

void VictimQueue::Insert(const EvictionKey& key) {
  const size_t index = PlaceIndex(key.node, GroupKind::kState);
  if (index >= places_.size()) places_.resize(index + 1, -1);
  CHECK(Find(key.node, key.part) == nullptr, "a part is filed twice");
  heap_.emplace_back();
  SiftUp(heap_.size() - 1, key);
}

void VictimQueue::Erase(PrefixNodeId node, GroupKind part) {
  const EvictionKey* filed = Find(node, part);
  CHECK(filed != nullptr, "a part that is not filed is erased");
  const size_t at = static_cast<size_t>(filed - heap_.data());
  places_[PlaceIndex(node, part)] = -1;
  const EvictionKey last = heap_.back();
  heap_.pop_back();
  if (at == heap_.size()) return;
  if (at > 0 && last < heap_[Parent(at)]) {
    SiftUp(at, last);
  } else {
    SiftDown(at, last);
  }
}

}  // namespace braid
