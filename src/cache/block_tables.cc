// Tables of one sequence; see the header. Engine thread.
#include "cache/block_tables.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"

namespace braid {
namespace {

GroupId Group(size_t g) { return GroupId(static_cast<int32_t>(g)); }

int32_t Owned(size_t live, size_t spares) { return static_cast<int32_t>(live + spares); }

}  // namespace

BlockTables::BlockTables(const CacheGeometry& geometry)
    : geometry_(&geometry), tables_(geometry.groups.size()) {}

bool BlockTables::Reserve(const BlockCounts& owned, BlockPool& pool) {
  BlockCounts take;
  for (size_t g = 0; g < tables_.size(); ++g) {
    const Table& table = tables_[g];
    const int32_t has = Owned(static_cast<size_t>(table.live), table.spares.size());
    take.by_group[g] = std::max(owned.by_group[g] - has, 0);
  }
  if (!pool.CanTake(take)) return false;
  for (size_t g = 0; g < tables_.size(); ++g) {
    std::vector<BlockId>& spares = tables_[g].spares;
    for (int32_t i = 0; i < take.by_group[g]; ++i) spares.push_back(pool.Take(Group(g)));
    // Spares are used from the back, lowest id first.
    std::sort(spares.begin(), spares.end(), std::greater<>());
  }
  return true;
}

bool BlockTables::IsHole(const Table& table, int32_t index) {
  return index >= static_cast<int32_t>(table.entries.size()) ||
         !table.entries[static_cast<size_t>(index)].valid();
}

int32_t BlockTables::Missing(const Table& table, GroupKind kind, int32_t end, int32_t (&out)[2]) {
  int32_t count = 0;
  if (kind == GroupKind::kFull) {  // from out[0] on, all of them
    out[0] = static_cast<int32_t>(table.entries.size());
    return std::max(static_cast<int32_t>(CeilDiv(end, kBlockTokens)) - out[0], 0);
  }
  const int32_t state = end / kBlockTokens - 1;
  if (state >= 0 && IsHole(table, state)) out[count++] = state;
  if (end % kBlockTokens != 0 && IsHole(table, state + 1)) out[count++] = state + 1;
  return count;
}

bool BlockTables::Cover(int32_t begin, int32_t end, BlockPool& pool,
                        std::vector<TableChange>& changes) {
  CHECK(begin >= 0 && begin < end);
  if (end <= covered_ && begin / kBlockTokens == (covered_ - 1) / kBlockTokens) return true;
  BlockCounts take;
  int32_t indices[2];
  bool beyond_spares = false;
  for (size_t g = 0; g < tables_.size(); ++g) {
    const Table& table = tables_[g];
    const GroupKind kind = geometry_->groups[g].kind;
    if (kind == GroupKind::kState) {
      CHECK(begin < kBlockTokens || !IsHole(table, begin / kBlockTokens - 1), "no state at {}",
            begin);
      CHECK(begin % kBlockTokens == 0 || !IsHole(table, begin / kBlockTokens), "no rows at {}",
            begin);
    }
    const int32_t count = Missing(table, kind, end, indices);
    take.by_group[g] = std::max(count - static_cast<int32_t>(table.spares.size()), 0);
    beyond_spares |= take.by_group[g] > 0;
  }
  if (beyond_spares && !pool.CanTake(take)) return false;
  for (size_t g = 0; g < tables_.size(); ++g) {
    Table& table = tables_[g];
    const GroupKind kind = geometry_->groups[g].kind;
    const int32_t count = Missing(table, kind, end, indices);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t index = kind == GroupKind::kFull ? indices[0] + i : indices[i];
      if (index >= static_cast<int32_t>(table.entries.size())) {
        table.entries.resize(static_cast<size_t>(index) + 1);
      }
      BlockId block;
      if (table.spares.empty()) {
        block = pool.Take(Group(g));
      } else {
        block = table.spares.back();
        table.spares.pop_back();
      }
      table.entries[static_cast<size_t>(index)] = block;
      ++table.live;
      changes.push_back({Group(g), index, block});
    }
  }
  covered_ = end % kBlockTokens == 0 ? 0 : static_cast<int32_t>(RoundUp(end, kBlockTokens));
  return true;
}

void BlockTables::RetireStates(int32_t end, int32_t state_blocks, BlockPool& pool) {
  const int32_t keep_from = end / kBlockTokens - 1;
  if (keep_from == kept_from_ && state_blocks == kept_blocks_) return;
  kept_from_ = keep_from;
  kept_blocks_ = state_blocks;
  for (size_t g = 0; g < tables_.size(); ++g) {
    if (geometry_->groups[g].kind != GroupKind::kState) continue;
    Table& table = tables_[g];
    for (; table.first < keep_from; ++table.first) {
      if (IsHole(table, table.first)) continue;
      BlockId& entry = table.entries[static_cast<size_t>(table.first)];
      table.spares.push_back(entry);
      entry = BlockId();
      --table.live;
    }
    while (!table.spares.empty() &&
           Owned(static_cast<size_t>(table.live), table.spares.size()) > state_blocks) {
      pool.Release(Group(g), table.spares.back());
      table.spares.pop_back();
    }
  }
}

void BlockTables::ReleaseAll(BlockPool& pool) {
  for (size_t g = 0; g < tables_.size(); ++g) {
    for (BlockId block : tables_[g].entries) {
      if (block.valid()) pool.Release(Group(g), block);
    }
    for (BlockId block : tables_[g].spares) pool.Release(Group(g), block);
    tables_[g] = Table();
  }
  covered_ = 0;
  kept_from_ = kept_blocks_ = -1;
}

void BlockTables::AppendOwned(GroupId group, std::vector<BlockId>& out) const {
  const Table& table = tables_[static_cast<size_t>(group.value)];
  for (BlockId block : table.entries) {
    if (block.valid()) out.push_back(block);
  }
  out.insert(out.end(), table.spares.begin(), table.spares.end());
}

}  // namespace braid
