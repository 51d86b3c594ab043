// One sequence's blocks in every group: the tables with holes that a plan names, the blocks it has
// reserved beyond them, and its path through the prefix cache. Engine thread.
//
// Invariants: a block is in one place (a table entry or a spare); a full group's table has no
// holes; a state group's table has entries only at the boundaries and rows that geometry.h names.
// An entry is the index's, borrowed, if the path's node carries the same block, and the sequence's
// own otherwise. The full parts of all path nodes are pinned, and the states that entries borrow.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "cache/geometry.h"
#include "cache/prefix_cache.h"

namespace braid {

// Why a state is published: the chunk or the block happens to end there; another request has these
// tokens up to there; the prompt ends in the block behind.
enum class Snapshot : uint8_t { kPassing, kBranch, kPromptEnd };

// Entry `index` of the table of `group` has become `block`.
struct TableChange {
  GroupId group;
  int32_t index = 0;
  BlockId block;
};

class BlockTables {
 public:
  // The geometry outlives the tables.
  explicit BlockTables(const CacheGeometry& geometry);

  // Starts in a space of the prefix cache, with what a match found already in place: borrowed and
  // pinned. The tables are empty. If the match is stored beyond, only its keys and values are: the
  // rest comes (CoverArriving).
  void Enter(const PrefixSpace& space, const PrefixMatch& match, PrefixCache& cache);
  // The request was admitted: what it found was used in this epoch, and so will its own blocks be.
  void Stamp(const PrefixMatch& match, int64_t epoch, PrefixCache& cache);

  // Takes blocks until the sequence has at least these counts; all or nothing.
  bool Reserve(const BlockCounts& blocks, PrefixCache& cache);

  // Gives every entry that a step over tokens [begin, end) reads or writes a block and appends what
  // changed. Spares first, then the cache's; false, with nothing changed, when it has too few.
  bool Cover(int32_t begin, int32_t end, PrefixCache& cache, std::vector<TableChange>& changes);
  // The same for what comes from elsewhere, up to `end`: keys and values that are missing before
  // it, and the states that a step from `end` on reads.
  bool CoverArriving(int32_t end, PrefixCache& cache, std::vector<TableChange>& changes);
  // Those entries as parts; of states, the ones after `begin`, a boundary.
  void AppendArriving(int32_t begin, int32_t end, std::vector<PagePart>& out) const;
  // True if a call of Cover would change nothing.
  bool Covers(int32_t begin, int32_t end) const {
    return end <= covered_ && begin / kBlockTokens == (covered_ - 1) / kBlockTokens;
  }
  // Appends all entries there are, for an executor that knows none.
  void AppendEntries(std::vector<TableChange>& changes) const;

  // A step over tokens [begin, end) has come back: blocks that became full and the state at the
  // last boundary inside pass to the index, unless it has them. Needs Enter.
  void Publish(int32_t begin, int32_t end, const TokenPieces& tokens, Snapshot snapshot,
               PrefixCache& cache);
  // Somebody resumed from the state that was published last.
  void MarkResumed(PrefixCache& cache);
  // The last whole block in place; none: there is no block, or nothing is published.
  PrefixNodeId leaf() const { return path_.empty() ? PrefixNodeId() : path_.back(); }
  // Tokens that are in place and in the index: found there, or published.
  int32_t published() const { return static_cast<int32_t>(path_.size()) * kBlockTokens; }

  // A step that ended at token `end` has come back: states of boundaries before the last one are
  // not read again. The sequence keeps `state_blocks` per state group, the rest goes back; what it
  // published is made up for where there is room.
  void RetireStates(int32_t end, int32_t state_blocks, PrefixCache& cache);

  // What was published stays: every row that wrote it came back without an error.
  void ReleaseAll(PrefixCache& cache);

  // Appends the parts that hold tokens [begin, end), of which `begin` is a boundary: keys and
  // values of all blocks; of states, those that a step from `end` on reads.
  void AppendParts(int32_t begin, int32_t end, std::vector<PagePart>& out) const;

  // Appends every block that the sequence owns in `group`, without borrowed ones.
  void AppendOwned(GroupId group, const PrefixIndex& index, std::vector<BlockId>& out) const;
  // Calls f(node, part) for every pin that the sequence holds.
  template <class F>
  void ForEachPin(const PrefixIndex& index, F f) const {
    for (size_t i = 0; i < path_.size(); ++i) {
      if (HasKind(GroupKind::kFull)) f(path_[i], GroupKind::kFull);
      if (Borrowed(index, GroupKind::kState, i)) f(path_[i], GroupKind::kState);
    }
  }

 private:
  struct Table {
    std::vector<BlockId> entries;  // invalid: a hole
    std::vector<BlockId> spares;   // owned, in no entry
    int32_t live = 0;              // entries that are not holes
  };
  bool AddEntries(int32_t end, PrefixCache& cache, std::vector<TableChange>& changes);
  static bool IsHole(const Table& table, int32_t index);
  // The entries that a step ending at `end` writes and that have no block yet.
  static int32_t Missing(const Table& table, GroupKind kind, int32_t end, int32_t (&out)[2]);
  void AppendBlocks(int32_t full_begin, int32_t begin, int32_t end,
                    std::vector<PagePart>& out) const;
  bool HasKind(GroupKind kind) const;
  bool Borrowed(const PrefixIndex& index, GroupKind kind, size_t at) const;
  // The entries of all groups of a kind at one index.
  PartBlocks Entries(GroupKind kind, size_t at) const;
  void PublishState(int32_t boundary, Snapshot snapshot, PrefixCache& cache);

  const CacheGeometry* geometry_;
  std::vector<Table> tables_;
  // Most steps stay inside a block and change nothing: what the last calls left behind.
  int32_t covered_ = 0;  // a row that goes on from the last one and ends here has its entries
  int32_t kept_from_ = -1, kept_blocks_ = -1;  // of the last RetireStates
  PrefixNodeId root_;
  std::vector<PrefixNodeId> path_;  // one per full block that is in place
  PrefixNodeId last_state_;  // of the path: the deepest with a state that this sequence knows
  size_t first_state_ = 0;   // no entry of a state group below is live
  size_t found_ = 0;         // path nodes that were there before
  PartEpochs epochs_;        // of what it publishes
  bool prompt_end_ = false;  // it has left a state at the end of its prompt
};

}  // namespace braid
