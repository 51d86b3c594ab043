// Tables of one sequence; see the header. Engine thread.
#include "cache/block_tables.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"

namespace braid {
namespace {

// A state inside an answer ranks as if its request had been admitted so many requests earlier:
// while the state at the end of the prompt is there, only the answer is computed again without it.
// So in a cache that is a little too small a conversation loses its second state before another
// its last.
constexpr int64_t kAnswerAge = 16;

GroupId Group(size_t g) { return GroupId(static_cast<int32_t>(g)); }

int32_t Owned(size_t live, size_t spares) { return static_cast<int32_t>(live + spares); }

}  // namespace

BlockTables::BlockTables(const CacheGeometry& geometry)
    : geometry_(&geometry), tables_(geometry.groups.size()) {}

bool BlockTables::Reserve(const BlockCounts& blocks, PrefixCache& cache) {
  BlockCounts take;
  for (size_t g = 0; g < tables_.size(); ++g) {
    const Table& table = tables_[g];
    const int32_t has = Owned(static_cast<size_t>(table.live), table.spares.size());
    take.by_group[g] = std::max(blocks.by_group[g] - has, 0);
  }
  if (!cache.MakeRoom(take)) return false;
  for (size_t g = 0; g < tables_.size(); ++g) {
    std::vector<BlockId>& spares = tables_[g].spares;
    for (int32_t i = 0; i < take.by_group[g]; ++i) spares.push_back(cache.Take(Group(g)));
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

bool BlockTables::Cover(int32_t begin, int32_t end, PrefixCache& cache,
                        std::vector<TableChange>& changes) {
  CHECK(begin >= 0 && begin < end);
  if (Covers(begin, end)) return true;
  for (size_t g = 0; g < tables_.size(); ++g) {
    if (geometry_->groups[g].kind != GroupKind::kState) continue;
    const Table& table = tables_[g];
    CHECK(begin < kBlockTokens || !IsHole(table, begin / kBlockTokens - 1), "no state at {}",
          begin);
    CHECK(begin % kBlockTokens == 0 || !IsHole(table, begin / kBlockTokens), "no rows at {}",
          begin);
  }
  return AddEntries(end, cache, changes);
}

bool BlockTables::CoverArriving(int32_t end, PrefixCache& cache,
                                std::vector<TableChange>& changes) {
  return AddEntries(end, cache, changes);
}

bool BlockTables::AddEntries(int32_t end, PrefixCache& cache, std::vector<TableChange>& changes) {
  BlockCounts take;
  int32_t indices[2];
  bool beyond_spares = false;
  for (size_t g = 0; g < tables_.size(); ++g) {
    const Table& table = tables_[g];
    const int32_t count = Missing(table, geometry_->groups[g].kind, end, indices);
    take.by_group[g] = std::max(count - static_cast<int32_t>(table.spares.size()), 0);
    beyond_spares |= take.by_group[g] > 0;
  }
  if (beyond_spares && !cache.MakeRoom(take)) return false;
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
        block = cache.Take(Group(g));
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

void BlockTables::AppendEntries(std::vector<TableChange>& changes) const {
  for (size_t g = 0; g < tables_.size(); ++g) {
    const std::vector<BlockId>& entries = tables_[g].entries;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].valid()) changes.push_back({Group(g), static_cast<int32_t>(i), entries[i]});
    }
  }
}

bool BlockTables::HasKind(GroupKind kind) const {
  for (const GroupGeometry& g : geometry_->groups) {
    if (g.kind == kind) return true;
  }
  return false;
}

PartBlocks BlockTables::Entries(GroupKind kind, size_t at) const {
  PartBlocks blocks;
  for (size_t g = 0; g < tables_.size(); ++g) {
    if (geometry_->groups[g].kind != kind || at >= tables_[g].entries.size()) continue;
    blocks.by_group[g] = tables_[g].entries[at];
  }
  return blocks;
}

void BlockTables::AppendParts(int32_t begin, int32_t end, std::vector<PagePart>& out) const {
  AppendBlocks(begin, begin, end, out);
}

void BlockTables::AppendArriving(int32_t begin, int32_t end, std::vector<PagePart>& out) const {
  AppendBlocks(published(), begin, end, out);
}

void BlockTables::AppendBlocks(int32_t full_begin, int32_t begin, int32_t end,
                               std::vector<PagePart>& out) const {
  const auto append = [&](int32_t i, GroupKind kind) {
    out.push_back(
        {.index = i, .kind = kind, .blocks = Entries(kind, static_cast<size_t>(i)), .key = {}});
  };
  if (HasKind(GroupKind::kFull)) {
    for (int32_t i = full_begin / kBlockTokens; i < CeilDiv(end, kBlockTokens); ++i) {
      append(i, GroupKind::kFull);
    }
  }
  if (!HasKind(GroupKind::kState)) return;
  const int32_t boundary = end / kBlockTokens;
  if (boundary > begin / kBlockTokens) append(boundary - 1, GroupKind::kState);
  if (end % kBlockTokens != 0) append(boundary, GroupKind::kState);
}

void BlockTables::MarkResumed(PrefixCache& cache) {
  if (last_state_.valid()) cache.index().MarkHit(last_state_);
}

bool BlockTables::Borrowed(const PrefixIndex& index, GroupKind kind, size_t at) const {
  if (at >= path_.size() || !index.Carries(path_[at], kind)) return false;
  const PartBlocks& published = index.Blocks(path_[at]);
  for (size_t g = 0; g < tables_.size(); ++g) {
    if (geometry_->groups[g].kind != kind) continue;
    const std::vector<BlockId>& entries = tables_[g].entries;
    return at < entries.size() && entries[at].valid() && entries[at] == published.by_group[g];
  }
  return false;
}

void BlockTables::Enter(const PrefixSpace& space, const PrefixMatch& match, PrefixCache& cache) {
  CHECK(!root_.valid() && path_.empty());
  root_ = cache.Root(space);
  const bool arrives = match.stored > match.tokens;
  const int32_t end = arrives ? std::min(match.known, match.stored) : match.tokens;
  found_ = static_cast<size_t>(end / kBlockTokens);
  for (size_t i = 0; i < found_; ++i) {
    path_.push_back(match.nodes[i]);
    cache.Refer(path_.back());
    const PartBlocks& published = cache.index().Blocks(path_.back());
    for (size_t g = 0; g < tables_.size(); ++g) {
      const bool full = geometry_->groups[g].kind == GroupKind::kFull;
      const bool borrows = full || (i + 1 == found_ && !arrives);
      tables_[g].entries.push_back(borrows ? published.by_group[g] : BlockId());
      tables_[g].live += borrows;
    }
    if (HasKind(GroupKind::kFull)) cache.Pin(path_.back(), GroupKind::kFull);
  }
  if (found_ == 0 || arrives || !HasKind(GroupKind::kState)) return;
  last_state_ = path_.back();
  cache.Pin(last_state_, GroupKind::kState);
  first_state_ = found_ - 1;
}

void BlockTables::Stamp(const PrefixMatch& match, int64_t epoch, PrefixCache& cache) {
  // What is computed again after an eviction is worth what it was when it was used last: else what
  // comes round less often than there is room for would drive out all the rest, again and again.
  epochs_ = {match.stop == ReuseStop::kEvicted ? match.evicted_epoch : epoch, epoch};
  for (PrefixNodeId node : match.nodes) cache.index().Touch(node, GroupKind::kFull, epoch);
  for (size_t i = 0; i + 1 < found_; ++i) cache.index().MarkPassed(path_[i]);
  if (!last_state_.valid()) return;
  cache.index().Touch(last_state_, GroupKind::kState, epoch);
  cache.index().MarkHit(last_state_);
}

void BlockTables::Publish(int32_t begin, int32_t end, const TokenPieces& tokens, Snapshot snapshot,
                          PrefixCache& cache) {
  const size_t full = static_cast<size_t>(end / kBlockTokens);
  BlockTokens block;
  for (size_t i = path_.size(); i < full; ++i) {
    tokens.Copy(static_cast<int32_t>(i), block);
    path_.push_back(cache.Child(i == 0 ? root_ : path_.back(), block));
    if (HasKind(GroupKind::kFull)) {
      cache.PublishFull(path_.back(), Entries(GroupKind::kFull, i), epochs_);
    }
  }
  const int32_t boundary = end / kBlockTokens * kBlockTokens;
  if (boundary > begin && HasKind(GroupKind::kState)) PublishState(boundary, snapshot, cache);
}

void BlockTables::PublishState(int32_t boundary, Snapshot snapshot, PrefixCache& cache) {
  const size_t at = static_cast<size_t>(boundary / kBlockTokens - 1);
  const bool branch = snapshot == Snapshot::kBranch;
  const PrefixNodeId node = path_[at];
  PartEpochs epochs = epochs_;
  if (prompt_end_) epochs.order -= kAnswerAge;
  cache.PublishState(node, Entries(GroupKind::kState, at), epochs);
  if (branch) cache.index().MarkBranch(node);
  if (snapshot == Snapshot::kPromptEnd) {
    cache.index().MarkPromptEnd(node);
    prompt_end_ = true;
  }
  if (last_state_.valid() && last_state_ != node) cache.index().MarkSuperseded(last_state_);
  last_state_ = node;
}

void BlockTables::RetireStates(int32_t end, int32_t state_blocks, PrefixCache& cache) {
  const int32_t keep_from = end / kBlockTokens - 1;
  if (keep_from == kept_from_ && state_blocks == kept_blocks_) return;
  kept_from_ = keep_from;
  kept_blocks_ = state_blocks;
  for (; static_cast<int32_t>(first_state_) < kept_from_; ++first_state_) {
    const bool borrowed = Borrowed(cache.index(), GroupKind::kState, first_state_);
    for (size_t g = 0; g < tables_.size(); ++g) {
      Table& table = tables_[g];
      if (geometry_->groups[g].kind != GroupKind::kState) continue;
      if (IsHole(table, static_cast<int32_t>(first_state_))) continue;
      BlockId& entry = table.entries[first_state_];
      if (!borrowed) table.spares.push_back(entry);
      entry = BlockId();
      --table.live;
    }
    if (borrowed) cache.Unpin(path_[first_state_], GroupKind::kState);
  }
  BlockCounts keep;
  for (size_t g = 0; g < tables_.size(); ++g) {
    if (geometry_->groups[g].kind != GroupKind::kState) continue;
    keep.by_group[g] = kept_blocks_;
    Table& table = tables_[g];
    while (!table.spares.empty() &&
           Owned(static_cast<size_t>(table.live), table.spares.size()) > kept_blocks_) {
      cache.Release(Group(g), table.spares.back());
      table.spares.pop_back();
    }
  }
  Reserve(keep, cache);
}

void BlockTables::ReleaseAll(PrefixCache& cache) {
  for (size_t i = first_state_; i < path_.size(); ++i) {
    if (!Borrowed(cache.index(), GroupKind::kState, i)) continue;
    for (size_t g = 0; g < tables_.size(); ++g) {
      if (geometry_->groups[g].kind == GroupKind::kState) tables_[g].entries[i] = BlockId();
    }
    cache.Unpin(path_[i], GroupKind::kState);
  }
  for (size_t i = path_.size(); i-- > 0;) {
    if (HasKind(GroupKind::kFull)) {
      if (Borrowed(cache.index(), GroupKind::kFull, i)) {
        for (size_t g = 0; g < tables_.size(); ++g) {
          if (geometry_->groups[g].kind == GroupKind::kFull) tables_[g].entries[i] = BlockId();
        }
      }
      cache.Unpin(path_[i], GroupKind::kFull);
    }
    cache.Unrefer(path_[i]);
  }
  if (root_.valid()) cache.Unrefer(root_);
  for (size_t g = 0; g < tables_.size(); ++g) {
    for (BlockId block : tables_[g].entries) {
      if (block.valid()) cache.Release(Group(g), block);
    }
    for (BlockId block : tables_[g].spares) cache.Release(Group(g), block);
  }
  *this = BlockTables(*geometry_);
}

void BlockTables::AppendOwned(GroupId group, const PrefixIndex& index,
                              std::vector<BlockId>& out) const {
  const Table& table = tables_[static_cast<size_t>(group.value)];
  const GroupKind kind = geometry_->groups[static_cast<size_t>(group.value)].kind;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    if (table.entries[i].valid() && !Borrowed(index, kind, i)) out.push_back(table.entries[i]);
  }
  out.insert(out.end(), table.spares.begin(), table.spares.end());
}

}  // namespace braid
