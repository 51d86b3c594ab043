// What can be evicted, ordered by what goes first: a heap of four children a node in one array, and
// where each part lies in it. Filing what goes after all that is there, as what was used last does,
// is O(1); everything else O(log n). Engine thread; ids only.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "cache/geometry.h"
#include "cache/prefix_match.h"

namespace braid {

// Of a node's part. Ordered by what goes first; no two are equal.
struct EvictionKey {
  int32_t tier = 0;
  int32_t depth = 0;
  int64_t epoch = 0;
  PrefixNodeId node;
  GroupKind part = GroupKind::kFull;

  std::strong_ordering operator<=>(const EvictionKey& other) const;
  bool operator==(const EvictionKey&) const = default;
};

class VictimQueue {
 public:
  size_t size() const { return heap_.size(); }
  bool empty() const { return heap_.empty(); }
  const EvictionKey& first() const { return heap_.front(); }
  // Null when the part is not in the queue; valid until the next change.
  const EvictionKey* Find(PrefixNodeId node, GroupKind part) const;
  // The part is not in the queue.
  void Insert(const EvictionKey& key);
  // The part is.
  void Erase(PrefixNodeId node, GroupKind part);

 private:
  static size_t PlaceIndex(PrefixNodeId node, GroupKind part) {
    return static_cast<size_t>(node.value) * 2 + (part == GroupKind::kState);
  }
  void Put(size_t at, const EvictionKey& key);
  void SiftUp(size_t at, const EvictionKey& key);
  void SiftDown(size_t at, const EvictionKey& key);

  std::vector<EvictionKey> heap_;
  std::vector<int32_t> places_;  // by node and part: the index in heap_, or -1
};

}  // namespace braid
