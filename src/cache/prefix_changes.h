// What has become of stored prefixes since somebody asked last: blocks that a request can resume
// behind, and blocks that it no longer can. For readers outside this process, who choose engines by
// it. Engine thread; plain values.
//
// Invariants: a block is stored while some state at its end or behind it can be resumed from; the
// block before a stored one is stored. Applied in their order, removals first, the changes keep
// both true at the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/prefix_match.h"

namespace braid {

struct StoredBlock {
  uint64_t hash = 0;               // of the tenant, the salt and all tokens up to the block's end
  std::optional<uint64_t> parent;  // the hash of the block before; none: the first
  bool shared = true;              // for every request without a tenant and a salt
  BlockTokens tokens;
};

struct PrefixChanges {
  bool cleared = false;  // all that was stored before is gone
  std::vector<uint64_t> removed;
  std::vector<StoredBlock> stored;  // a block comes after the block before it
  bool empty() const { return !cleared && removed.empty() && stored.empty(); }
};

// Collects changes. A block that was stored and removed, or removed and stored, did not change.
class PrefixJournal {
 public:
  void Store(const StoredBlock& block) {
    if (removed_.erase(block.hash) > 0) return;
    at_[block.hash] = stored_.size();
    stored_.push_back(block);
  }
  void Remove(uint64_t hash) {
    if (at_.erase(hash) == 0) removed_.try_emplace(hash, removals_++);
  }
  PrefixChanges Take();

 private:
  bool cleared_ = true;  // an index begins empty, whatever its process was before
  int64_t removals_ = 0;
  std::unordered_map<uint64_t, int64_t> removed_;  // by hash: which removal it was
  std::vector<StoredBlock> stored_;
  std::unordered_map<uint64_t, size_t> at_;  // those of stored_ that count
};

}  // namespace braid
