// Deterministic packing of groups' blocks into pages; see the header. Engine thread.
#include "cache/block_pool.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/math.h"

namespace braid {

BlockPool::BlockPool(const CacheGeometry& geometry)
    : pages_total_(geometry.pages - 1),
      words_(1),
      pages_(static_cast<size_t>(geometry.pages)),
      empty_pages_(geometry.pages) {
  CHECK(CheckGeometry(geometry).ok());
  for (const GroupGeometry& g : geometry.groups) {
    Group group{.blocks_per_page = g.blocks_per_page,
                .levels = IdSet(g.blocks_per_page),
                .pages_by_free = {}};
    for (int32_t n = 0; n < g.blocks_per_page; ++n) {
      group.pages_by_free.emplace_back(n == 0 ? 0 : geometry.pages);
    }
    groups_.push_back(std::move(group));
    words_ = std::max(words_, static_cast<size_t>(CeilDiv(g.blocks_per_page, 64)));
  }
  bits_.resize(pages_.size() * words_);
  cached_bits_.resize(bits_.size());
  for (int32_t page = 1; page < geometry.pages; ++page) empty_pages_.Insert(page);
}

bool BlockPool::CanTake(const BlockCounts& blocks) const {
  int64_t pages = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t beyond = blocks.by_group[g] - groups_[g].free_in_bound;
    if (beyond > 0) pages += CeilDiv(beyond, groups_[g].blocks_per_page);
  }
  return pages <= empty_pages_.size();
}

void BlockPool::File(Group& group, int32_t page, int32_t free_before, int32_t free_after) {
  const auto partial = [&](int32_t n) { return n > 0 && n < group.blocks_per_page; };
  if (partial(free_before)) {
    IdSet& set = group.pages_by_free[static_cast<size_t>(free_before)];
    set.Erase(page);
    if (set.empty()) group.levels.Erase(free_before);
  }
  if (partial(free_after)) {
    IdSet& set = group.pages_by_free[static_cast<size_t>(free_after)];
    if (set.empty()) group.levels.Insert(free_after);
    set.Insert(page);
  }
}

bool BlockPool::CanMake(const BlockCounts& blocks) const {
  int64_t pages = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t beyond = blocks.by_group[g] - groups_[g].free_in_locked;
    if (beyond > 0) pages += CeilDiv(beyond, groups_[g].blocks_per_page);
  }
  return pages <= pages_total_ - locked_pages_;
}

BlockPool::Place BlockPool::PlaceOf(GroupId group, BlockId block) const {
  const int32_t packed = At(group).blocks_per_page;
  const int32_t page = block.value / packed;
  const int32_t place = block.value % packed;
  CHECK(block.valid() && page > 0 && page <= pages_total_, "block {} of group {}", block.value,
        group.value);
  return {page, static_cast<size_t>(page) * words_ + static_cast<size_t>(place / 64),
          uint64_t{1} << (place & 63)};
}

void BlockPool::CountLocked(Group& group, Page& page, int32_t change) {
  if (page.locked == 0) {
    ++locked_pages_;
    group.free_in_locked += group.blocks_per_page;
  }
  page.locked += change;
  group.free_in_locked -= change;
  if (page.locked > 0) return;
  --locked_pages_;
  group.free_in_locked -= group.blocks_per_page;
}

// The block's page is bound, or empty and gets bound.
void BlockPool::MarkUsed(GroupId group_id, const Place& place) {
  Group& group = At(group_id);
  Page& page = pages_[static_cast<size_t>(place.page)];
  if (page.group < 0) {
    empty_pages_.Erase(place.page);
    page.group = group_id.value;
    group.free_in_bound += group.blocks_per_page;
  }
  bits_[place.word] |= place.bit;
  const int32_t free = group.blocks_per_page - page.used;
  ++page.used;
  ++group.used;
  --group.free_in_bound;
  File(group, place.page, free, free - 1);
}

BlockId BlockPool::Take(GroupId group_id) {
  Group& group = At(group_id);
  const int32_t id = group.levels.empty()
                         ? empty_pages_.Lowest()
                         : group.pages_by_free[static_cast<size_t>(group.levels.Lowest())].Lowest();
  CHECK(id > 0, "no block of group {} is free", group_id.value);
  const uint64_t* words = Words(id);
  int32_t word = 0;
  while (~words[word] == 0) ++word;
  const int32_t place = word * 64 + std::countr_one(words[word]);
  CHECK(place < group.blocks_per_page);
  const BlockId block(id * group.blocks_per_page + place);
  MarkUsed(group_id, PlaceOf(group_id, block));
  CountLocked(group, pages_[static_cast<size_t>(id)], 1);
  return block;
}

void BlockPool::Claim(GroupId group_id, BlockId block) {
  const Place place = PlaceOf(group_id, block);
  const Page& page = pages_[static_cast<size_t>(place.page)];
  CHECK((page.group < 0 || page.group == group_id.value) && !(bits_[place.word] & place.bit),
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
  Page& page = pages_[static_cast<size_t>(place.page)];
  CHECK(page.group == group_id.value && (bits_[place.word] & place.bit) != 0 &&
            ((cached_bits_[place.word] & place.bit) != 0) != cached,
        "block {} of group {} cannot change to cached: {}", block.value, group_id.value, cached);
  cached_bits_[place.word] ^= place.bit;
  group.cached += cached ? 1 : -1;
  CountLocked(group, page, cached ? -1 : 1);
}

void BlockPool::Release(GroupId group_id, BlockId block) {
  if (remember_freed_) freed_.emplace_back(group_id, block);
  Group& group = At(group_id);
  const Place place = PlaceOf(group_id, block);
  Page& page = pages_[static_cast<size_t>(place.page)];
  CHECK(page.group == group_id.value && (bits_[place.word] & place.bit) != 0,
        "block {} of group {} is not in use", block.value, group_id.value);
  if ((cached_bits_[place.word] & place.bit) != 0) {
    cached_bits_[place.word] &= ~place.bit;
    --group.cached;
  } else {
    CountLocked(group, page, -1);
  }
  bits_[place.word] &= ~place.bit;
  const int32_t free = group.blocks_per_page - page.used;
  --page.used;
  --group.used;
  ++group.free_in_bound;
  File(group, place.page, free, free + 1);
  if (page.used > 0) return;
  group.free_in_bound -= group.blocks_per_page;
  page.group = -1;
  empty_pages_.Insert(place.page);
}

Status BlockPool::Audit() const {
  const auto wrong = [](std::string message) {
    return Error{ErrorCode::kInternal, "cache accounting: " + std::move(message), ""};
  };
  std::vector<int64_t> used(groups_.size()), free(groups_.size()), cached(groups_.size());
  std::vector<int64_t> unlocked(groups_.size());
  int32_t locked_parents = 0;
  if (pages_[0].group != -1 || empty_pages_.Contains(0)) return wrong("the sink is in use");
  int32_t empty = 0;
  for (int32_t id = 0; id <= pages_total_; ++id) {
    const Page& page = pages_[static_cast<size_t>(id)];
    int32_t bits = 0, cached_bits = 0;
    for (size_t w = static_cast<size_t>(id) * words_; w < (static_cast<size_t>(id) + 1) * words_;
         ++w) {
      bits += std::popcount(bits_[w]);
      cached_bits += std::popcount(bits_[w] & cached_bits_[w]);
      if ((cached_bits_[w] & ~bits_[w]) != 0) {
        return wrong(fmt::format("page {} has cached blocks that are free", id));
      }
    }
    if (bits != page.used || bits - cached_bits != page.locked) {
      return wrong(fmt::format("page {} counts {} blocks, {} locked; its maps have {} and {}", id,
                               page.used, page.locked, bits, bits - cached_bits));
    }
    locked_parents += page.locked > 0;
    if ((page.group < 0) != (bits == 0))
      return wrong(fmt::format("page {} is bound and empty", id));
    if (id > 0 && empty_pages_.Contains(id) != (bits == 0)) {
      return wrong(fmt::format("page {} with {} blocks is filed wrongly", id, bits));
    }
    empty += id > 0 && bits == 0;
    if (page.group < 0) continue;
    const Group& group = groups_[static_cast<size_t>(page.group)];
    const int32_t left = group.blocks_per_page - bits;
    used[static_cast<size_t>(page.group)] += bits;
    free[static_cast<size_t>(page.group)] += left;
    cached[static_cast<size_t>(page.group)] += cached_bits;
    if (page.locked > 0) {
      unlocked[static_cast<size_t>(page.group)] += group.blocks_per_page - page.locked;
    }
    if (left > 0 && (!group.pages_by_free[static_cast<size_t>(left)].Contains(id) ||
                     !group.levels.Contains(left))) {
      return wrong(fmt::format("page {} with {} free blocks is not on offer", id, left));
    }
  }
  if (empty != empty_pages_.size()) return wrong(fmt::format("{} pages are empty", empty));
  if (locked_parents != locked_pages_) {
    return wrong(fmt::format("{} pages are locked, {} counted", locked_parents, locked_pages_));
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
