// Pins as the pool sees them, and eviction with second thoughts; see the header. Engine thread.
#include "cache/prefix_cache.h"

#include "base/check.h"

namespace braid {

PrefixCache::PrefixCache(const CacheGeometry& geometry, const PageDirectory* tier)
    : geometry_(&geometry), pool_(geometry), index_(geometry, tier) {}

void PrefixCache::Release(GroupId group, BlockId block) {
  pool_.Release(group, block);
  ++version_;
}

bool PrefixCache::MakeRoom(const BlockCounts& blocks) {
  if (pool_.CanTake(blocks)) return true;
  if (!pool_.CanMake(blocks)) return false;
  Evict(blocks);
  return true;
}

void PrefixCache::Evict(const BlockCounts& blocks) {
  victims_.clear();
  while (!pool_.CanTake(blocks)) {
    auto victim = index_.TakeVictim();
    CHECK(victim.has_value(), "cached blocks cannot be evicted");
    ForBlocks(victim->part, victim->blocks, [&](GroupId g, BlockId b) { pool_.Release(g, b); });
    victims_.push_back(*victim);
  }
  // The last one was needed. Earlier ones may have freed places in pages that stay bound.
  for (size_t i = victims_.size() - 1; i-- > 0;) {
    const PrefixIndex::Victim& victim = victims_[i];
    if (!index_.Restorable(victim)) continue;
    ForBlocks(victim.part, victim.blocks, [&](GroupId g, BlockId b) { pool_.Claim(g, b); });
    if (pool_.CanTake(blocks)) {
      index_.Restore(victim);
      victims_.erase(victims_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ForBlocks(victim.part, victim.blocks, [&](GroupId g, BlockId b) { pool_.Release(g, b); });
    }
  }
  for (const PrefixIndex::Victim& victim : victims_) {
    ++evictions_[victim.part == GroupKind::kState];
    index_.Forget(victim);
  }
}

void PrefixCache::PublishFull(PrefixNodeId node, const PartBlocks& blocks, PartEpochs epochs) {
  if (index_.Carries(node, GroupKind::kFull)) {
    if (index_.pins(node, GroupKind::kFull) > 0) {
      Pin(node, GroupKind::kFull);
      return;
    }
    // Nobody uses the old blocks and the caller cannot stop using its own: keep those.
    ForBlocks(GroupKind::kFull, index_.Blocks(node), [&](GroupId g, BlockId b) { Release(g, b); });
    index_.Replace(node, blocks, epochs);
    return;
  }
  index_.Put(node, GroupKind::kFull, blocks, epochs);
  ++version_;
}

void PrefixCache::PublishState(PrefixNodeId node, const PartBlocks& blocks, PartEpochs epochs) {
  if (index_.Carries(node, GroupKind::kState)) return;
  index_.Put(node, GroupKind::kState, blocks, epochs);
  ++version_;
}

void PrefixCache::Pin(PrefixNodeId node, GroupKind part) {
  if (!index_.Pin(node, part)) return;
  ForBlocks(part, index_.Blocks(node), [&](GroupId g, BlockId b) { pool_.SetCached(g, b, false); });
}

void PrefixCache::Unpin(PrefixNodeId node, GroupKind part) {
  if (!index_.Unpin(node, part)) return;
  ForBlocks(part, index_.Blocks(node), [&](GroupId g, BlockId b) { pool_.SetCached(g, b, true); });
  ++version_;
}

void PrefixCache::Drop(const PrefixIndex::Victim& victim) {
  ForBlocks(victim.part, victim.blocks, [&](GroupId g, BlockId b) { Release(g, b); });
  index_.Forget(victim);
}

void PrefixCache::Flush() {
  while (const auto victim = index_.TakeVictim()) Drop(*victim);
}

Status PrefixCache::Audit() const {
  RETURN_IF_ERROR(pool_.Audit());
  RETURN_IF_ERROR(index_.Audit());
  Status status;
  std::vector<int64_t> cached(geometry_->groups.size());
  index_.ForEachPart([&](PrefixNodeId, GroupKind part, const PartBlocks& blocks, int32_t pins) {
    for (size_t g = 0; g < geometry_->groups.size(); ++g) {
      if (geometry_->groups[g].kind != part) continue;
      const GroupId group(static_cast<int32_t>(g));
      cached[g] += pins == 0;
      if (pool_.IsCached(group, blocks.by_group[g]) != (pins == 0)) {
        status = Error{ErrorCode::kInternal,
                       fmt::format("cache accounting: block {} of group {} has {} pins and is not "
                                   "in the pool what it should be",
                                   blocks.by_group[g].value, g, pins)};
      }
    }
  });
  RETURN_IF_ERROR(status);
  for (size_t g = 0; g < cached.size(); ++g) {
    const int64_t counted = pool_.blocks_cached(GroupId(static_cast<int32_t>(g)));
    if (cached[g] != counted) {
      return Error{ErrorCode::kInternal,
                   fmt::format("cache accounting: group {} has {} cached blocks, the index {}", g,
                               counted, cached[g])};
    }
  }
  return {};
}

}  // namespace braid
