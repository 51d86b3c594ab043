// The arena and its contents: allocates blocks, keeps published ones until their room is needed,
// and chooses what to evict. Engine thread; ids only.
//
// Invariants: a block in use belongs to one sequence or to the index; a block of the index is
// locked in the pool while it is pinned and cached otherwise; whoever pins a node's full part pins
// those of all nodes before it, so everything cached can be evicted.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_pool.h"
#include "cache/prefix_index.h"

namespace braid {

class PrefixCache {
 public:
  // The geometry outlives the cache and has passed CheckGeometry; so does the tier's directory.
  explicit PrefixCache(const CacheGeometry& geometry, const PageDirectory* tier = nullptr);

  // Evicts until so many blocks can be taken, all of them together; false, with nothing changed,
  // when even that is not enough. Restores parts whose eviction turned out unnecessary.
  bool MakeRoom(const BlockCounts& blocks);
  // One block; MakeRoom must have said yes.
  BlockId Take(GroupId group) { return pool_.Take(group); }
  void Release(GroupId group, BlockId block);

  PrefixMatch Match(const PrefixSpace& space, const TokenPieces& tokens, int32_t limit,
                    PrefixKeys& keys) const {
    return index_.Match(space, tokens, limit, keys);
  }
  PrefixMatch Match(const PrefixSpace& space, const TokenPieces& tokens, int32_t limit) const {
    PrefixKeys keys;
    return Match(space, tokens, limit, keys);
  }
  PrefixNodeId Root(const PrefixSpace& space) { return index_.Root(space); }
  PrefixNodeId Child(PrefixNodeId parent, const BlockTokens& tokens) {
    return index_.Child(parent, tokens);
  }
  void Refer(PrefixNodeId node) { index_.Refer(node); }
  void Unrefer(PrefixNodeId node) { index_.Unrefer(node); }

  // The caller has written a node's part and pins it from now on. The blocks pass to the index if
  // it has none there, or none that is in use; otherwise they stay the caller's.
  void PublishFull(PrefixNodeId node, const PartBlocks& blocks, PartEpochs epochs);
  // The same for a state; but where there is one already, nothing changes and nothing is pinned.
  void PublishState(PrefixNodeId node, const PartBlocks& blocks, PartEpochs epochs);
  void Pin(PrefixNodeId node, GroupKind part);
  void Unpin(PrefixNodeId node, GroupKind part);
  // Frees everything that is not pinned.
  void Flush();

  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }
  const BlockPool& pool() const { return pool_; }
  void RememberFreed(bool remember) { pool_.RememberFreed(remember); }
  std::vector<std::pair<GroupId, BlockId>> TakeFreed() { return pool_.TakeFreed(); }
  // Before the first prefix.
  void RememberChanges() { index_.RememberChanges(); }
  PrefixChanges TakeChanges() { return index_.TakeChanges(); }
  int64_t evictions(GroupKind part) const { return evictions_[part == GroupKind::kState]; }
  // Grows with everything that can turn a refused demand into one that fits, or deepen a match.
  int64_t version() const { return version_; }

  // The pool's and the index's own counts, and each against the other.
  Status Audit() const;

 private:
  // Calls f(group, block) for the blocks of one part.
  template <class F>
  void ForBlocks(GroupKind part, const PartBlocks& blocks, F f) {
    for (size_t g = 0; g < geometry_->groups.size(); ++g) {
      if (geometry_->groups[g].kind != part) continue;
      f(GroupId(static_cast<int32_t>(g)), blocks.by_group[g]);
    }
  }
  void Drop(const PrefixIndex::Victim& victim);
  void Evict(const BlockCounts& blocks);

  const CacheGeometry* geometry_;
  BlockPool pool_;
  PrefixIndex index_;
  std::vector<PrefixIndex::Victim> victims_;  // scratch of Evict
  int64_t evictions_[2] = {0, 0};             // full, state
  int64_t version_ = 0;
};

}  // namespace braid
