// One sequence's blocks in every group: the tables with holes that a plan names, and the blocks it
// has reserved beyond them. Engine thread.
//
// Invariants: a block is in one place (a table entry or a spare); a full group's table has no
// holes; a state group's table has entries only at the boundaries and rows that geometry.h names.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "cache/block_pool.h"
#include "cache/geometry.h"

namespace braid {

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

  // Takes blocks until the sequence owns at least these counts; all or nothing.
  bool Reserve(const BlockCounts& owned, BlockPool& pool);

  // Gives every entry that a step over tokens [begin, end) reads or writes a block and appends what
  // changed. Spares first, then the pool; false, with nothing changed, when the pool has too few.
  bool Cover(int32_t begin, int32_t end, BlockPool& pool, std::vector<TableChange>& changes);

  // A step that ended at token `end` has come back: states of boundaries before the last one are
  // not read again. Blocks beyond `state_blocks` per state group go back to the pool, the others
  // are spares.
  void RetireStates(int32_t end, int32_t state_blocks, BlockPool& pool);

  void ReleaseAll(BlockPool& pool);

  // Appends every block that the sequence owns in `group`.
  void AppendOwned(GroupId group, std::vector<BlockId>& out) const;

 private:
  struct Table {
    std::vector<BlockId> entries;  // invalid: a hole
    std::vector<BlockId> spares;   // owned, in no entry
    int32_t live = 0;              // entries that are not holes
    int32_t first = 0;             // no entry below is live (state groups)
  };
  static bool IsHole(const Table& table, int32_t index);
  // The entries that a step ending at `end` writes and that have no block yet.
  static int32_t Missing(const Table& table, GroupKind kind, int32_t end, int32_t (&out)[2]);

  const CacheGeometry* geometry_;
  std::vector<Table> tables_;
  // Most steps stay inside a block and change nothing: what the last calls left behind.
  int32_t covered_ = 0;  // a row that goes on from the last one and ends here has its entries
  int32_t kept_from_ = -1, kept_blocks_ = -1;  // of the last RetireStates
};

}  // namespace braid
