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

class VictimQueue {
 public:
  // Of a node's part. Ordered by what goes first; no two are equal.
  struct Rank {
    int32_t tier = 0;
    int32_t depth = 0;
    int64_t epoch = 0;
    PrefixNodeId node;
    GroupKind part = GroupKind::kFull;

    std::strong_ordering operator<=>(const Rank& other) const;
    bool operator==(const Rank&) const = default;
  };

  size_t size() const { return heap_.size(); }
  bool empty() const { return heap_.empty(); }
  const Rank& first() const { return heap_.front(); }
  // Null when the part is not in the queue; valid until the next change.
  const Rank* Find(PrefixNodeId node, GroupKind part) const;
  // The part is not in the queue.
  void Insert(const Rank& rank);
  // The part is.
  void Erase(PrefixNodeId node, GroupKind part);

 private:
  static size_t PlaceIndex(PrefixNodeId node, GroupKind part) {
    return static_cast<size_t>(node.value) * 2 + (part == GroupKind::kState);
  }
  void Put(size_t at, const Rank& rank);
  void SiftUp(size_t at, const Rank& rank);
  void SiftDown(size_t at, const Rank& rank);

  std::vector<Rank> heap_;
  std::vector<int32_t> places_;  // by node and part: the index in heap_, or -1
};

}  // namespace braid
