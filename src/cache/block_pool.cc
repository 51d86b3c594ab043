// Deterministic packing of groups' blocks into parents; see the header. Engine thread.
#include "cache/block_pool.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/math.h"

namespace braid {

BlockPool::BlockPool(const CacheGeometry& geometry)
    : parents_total_(geometry.parents - 1),
      words_(1),
      parents_(static_cast<size_t>(geometry.parents)),
      empty_parents_(geometry.parents) {
  CHECK(CheckGeometry(geometry).ok());
  for (const GroupGeometry& g : geometry.groups) {
    Group group{.blocks_per_parent = g.blocks_per_parent,
                .levels = IdSet(g.blocks_per_parent),
                .parents_by_free = {}};
    for (int32_t n = 0; n < g.blocks_per_parent; ++n) {
      group.parents_by_free.emplace_back(n == 0 ? 0 : geometry.parents);
    }
    groups_.push_back(std::move(group));
    words_ = std::max(words_, static_cast<size_t>(CeilDiv(g.blocks_per_parent, 64)));
  }
  bits_.resize(parents_.size() * words_);
  cached_bits_.resize(bits_.size());
  for (int32_t parent = 1; parent < geometry.parents; ++parent) empty_parents_.Insert(parent);
}

bool BlockPool::CanTake(const BlockCounts& blocks) const {
  int64_t parents = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t beyond = blocks.by_group[g] - groups_[g].free_in_bound;
    if (beyond > 0) parents += CeilDiv(beyond, groups_[g].blocks_per_parent);
  }
  return parents <= empty_parents_.size();
}

void BlockPool::File(Group& group, int32_t parent, int32_t free_before, int32_t free_after) {
  const auto partial = [&](int32_t n) { return n > 0 && n < group.blocks_per_parent; };
  if (partial(free_before)) {
    IdSet& set = group.parents_by_free[static_cast<size_t>(free_before)];
    set.Erase(parent);
    if (set.empty()) group.levels.Erase(free_before);
  }
  if (partial(free_after)) {
    IdSet& set = group.parents_by_free[static_cast<size_t>(free_after)];
    if (set.empty()) group.levels.Insert(free_after);
    set.Insert(parent);
  }
}

bool BlockPool::CanMake(const BlockCounts& blocks) const {
  int64_t parents = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t beyond = blocks.by_group[g] - groups_[g].free_in_locked;
    if (beyond > 0) parents += CeilDiv(beyond, groups_[g].blocks_per_parent);
  }
  return parents <= parents_total_ - locked_parents_;
}

BlockPool::Place BlockPool::PlaceOf(GroupId group, BlockId block) const {
  const int32_t packed = At(group).blocks_per_parent;
  const int32_t parent = block.value / packed;
  const int32_t place = block.value % packed;
  CHECK(block.valid() && parent > 0 && parent <= parents_total_, "block {} of group {}",
        block.value, group.value);
  return {parent, static_cast<size_t>(parent) * words_ + static_cast<size_t>(place / 64),
          uint64_t{1} << (place & 63)};
}

void BlockPool::CountLocked(Group& group, Parent& parent, int32_t change) {
  if (parent.locked == 0) {
    ++locked_parents_;
    group.free_in_locked += group.blocks_per_parent;
  }
  parent.locked += change;
  group.free_in_locked -= change;
  if (parent.locked > 0) return;
  --locked_parents_;
  group.free_in_locked -= group.blocks_per_parent;
}

// The block's parent is bound, or empty and gets bound.
void BlockPool::MarkUsed(GroupId group_id, const Place& place) {
  Group& group = At(group_id);
  Parent& parent = parents_[static_cast<size_t>(place.parent)];
  if (parent.group < 0) {
    empty_parents_.Erase(place.parent);
    parent.group = group_id.value;
    group.free_in_bound += group.blocks_per_parent;
  }
  bits_[place.word] |= place.bit;
  const int32_t free = group.blocks_per_parent - parent.used;
  ++parent.used;
  ++group.used;
  --group.free_in_bound;
  File(group, place.parent, free, free - 1);
}

BlockId BlockPool::Take(GroupId group_id) {
  Group& group = At(group_id);
  const int32_t id =
      group.levels.empty()
          ? empty_parents_.Lowest()
          : group.parents_by_free[static_cast<size_t>(group.levels.Lowest())].Lowest();
  CHECK(id > 0, "no block of group {} is free", group_id.value);
  const uint64_t* words = Words(id);
  int32_t word = 0;
  while (~words[word] == 0) ++word;
  const int32_t place = word * 64 + std::countr_one(words[word]);
  CHECK(place < group.blocks_per_parent);
  const BlockId block(id * group.blocks_per_parent + place);
  MarkUsed(group_id, PlaceOf(group_id, block));
  CountLocked(group, parents_[static_cast<size_t>(id)], 1);
  return block;
}

void BlockPool::Claim(GroupId group_id, BlockId block) {
  const Place place = PlaceOf(group_id, block);
  const Parent& parent = parents_[static_cast<size_t>(place.parent)];
  CHECK((parent.group < 0 || parent.group == group_id.value) && !(bits_[place.word] & place.bit),
        "block {} of group {} is not free", block.value, group_id.value);
  MarkUsed(group_id, place);
  // It holds what it held.
  if (remember_freed_) std::erase(freed_, std::pair(group_id, block));
  cached_bits_[place.word] |= place.bit;
  ++At(group_id).cached;
}

bool BlockPool::IsCached(GroupId group, BlockId block) const {
  const Place place = PlaceOf(group, block);
  return (cached_bits_[place.word] & place.bit) != 0;
}

void BlockPool::SetCached(GroupId group_id, BlockId block, bool cached) {
  Group& group = At(group_id);
  const Place place = PlaceOf(group_id, block);
  Parent& parent = parents_[static_cast<size_t>(place.parent)];
  CHECK(parent.group == group_id.value && (bits_[place.word] & place.bit) != 0 &&
            ((cached_bits_[place.word] & place.bit) != 0) != cached,
        "block {} of group {} cannot change to cached: {}", block.value, group_id.value, cached);
  cached_bits_[place.word] ^= place.bit;
  group.cached += cached ? 1 : -1;
  CountLocked(group, parent, cached ? -1 : 1);
}

void BlockPool::Release(GroupId group_id, BlockId block) {
  if (remember_freed_) freed_.emplace_back(group_id, block);
  Group& group = At(group_id);
  const Place place = PlaceOf(group_id, block);
  Parent& parent = parents_[static_cast<size_t>(place.parent)];
  CHECK(parent.group == group_id.value && (bits_[place.word] & place.bit) != 0,
        "block {} of group {} is not in use", block.value, group_id.value);
  if ((cached_bits_[place.word] & place.bit) != 0) {
    cached_bits_[place.word] &= ~place.bit;
    --group.cached;
  } else {
    CountLocked(group, parent, -1);
  }
  bits_[place.word] &= ~place.bit;
  const int32_t free = group.blocks_per_parent - parent.used;
  --parent.used;
  --group.used;
  ++group.free_in_bound;
  File(group, place.parent, free, free + 1);
  if (parent.used > 0) return;
  group.free_in_bound -= group.blocks_per_parent;
  parent.group = -1;
  empty_parents_.Insert(place.parent);
}

Status BlockPool::Audit() const {
  const auto wrong = [](std::string message) {
    return Error{ErrorCode::kInternal, "cache accounting: " + std::move(message), ""};
  };
  std::vector<int64_t> used(groups_.size()), free(groups_.size()), cached(groups_.size());
  std::vector<int64_t> unlocked(groups_.size());
  int32_t locked_parents = 0;
  if (parents_[0].group != -1 || empty_parents_.Contains(0)) return wrong("the sink is in use");
  int32_t empty = 0;
  for (int32_t id = 0; id <= parents_total_; ++id) {
    const Parent& parent = parents_[static_cast<size_t>(id)];
    int32_t bits = 0, cached_bits = 0;
    for (size_t w = static_cast<size_t>(id) * words_; w < (static_cast<size_t>(id) + 1) * words_;
         ++w) {
      bits += std::popcount(bits_[w]);
      cached_bits += std::popcount(bits_[w] & cached_bits_[w]);
      if ((cached_bits_[w] & ~bits_[w]) != 0) {
        return wrong(fmt::format("parent {} has cached blocks that are free", id));
      }
    }
    if (bits != parent.used || bits - cached_bits != parent.locked) {
      return wrong(fmt::format("parent {} counts {} blocks, {} locked; its maps have {} and {}", id,
                               parent.used, parent.locked, bits, bits - cached_bits));
    }
    locked_parents += parent.locked > 0;
    if ((parent.group < 0) != (bits == 0))
      return wrong(fmt::format("parent {} is bound and empty", id));
    if (id > 0 && empty_parents_.Contains(id) != (bits == 0)) {
      return wrong(fmt::format("parent {} with {} blocks is filed wrongly", id, bits));
    }
    empty += id > 0 && bits == 0;
    if (parent.group < 0) continue;
    const Group& group = groups_[static_cast<size_t>(parent.group)];
    const int32_t left = group.blocks_per_parent - bits;
    used[static_cast<size_t>(parent.group)] += bits;
    free[static_cast<size_t>(parent.group)] += left;
    cached[static_cast<size_t>(parent.group)] += cached_bits;
    if (parent.locked > 0) {
      unlocked[static_cast<size_t>(parent.group)] += group.blocks_per_parent - parent.locked;
    }
    if (left > 0 && (!group.parents_by_free[static_cast<size_t>(left)].Contains(id) ||
                     !group.levels.Contains(left))) {
      return wrong(fmt::format("parent {} with {} free blocks is not on offer", id, left));
    }
  }
  if (empty != empty_parents_.size()) return wrong(fmt::format("{} parents are empty", empty));
  if (locked_parents != locked_parents_) {
    return wrong(fmt::format("{} parents are locked, {} counted", locked_parents, locked_parents_));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (cached[g] != groups_[g].cached || unlocked[g] != groups_[g].free_in_locked) {
      return wrong(
          fmt::format("group {} counts {} cached blocks and {} to be had beside locked "
                      "ones, recounted {} and {}",
                      g, groups_[g].cached, groups_[g].free_in_locked, cached[g], unlocked[g]));
    }
    if (used[g] != groups_[g].used || free[g] != groups_[g].free_in_bound) {
      return wrong(fmt::format("group {} counts {} used and {} free blocks, recounted {} and {}", g,
                               groups_[g].used, groups_[g].free_in_bound, used[g], free[g]));
    }
  }
  return {};
}

}  // namespace braid
