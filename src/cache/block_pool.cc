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

BlockId BlockPool::Take(GroupId group_id) {
  Group& group = At(group_id);
  int32_t id = -1;
  if (!group.levels.empty()) {
    id = group.parents_by_free[static_cast<size_t>(group.levels.Lowest())].Lowest();
  } else {
    id = empty_parents_.Lowest();
    CHECK(id > 0, "no block of group {} is free", group_id.value);
    empty_parents_.Erase(id);
    parents_[static_cast<size_t>(id)].group = group_id.value;
    group.free_in_bound += group.blocks_per_parent;
  }
  Parent& parent = parents_[static_cast<size_t>(id)];
  uint64_t* words = Words(id);
  int32_t word = 0;
  while (~words[word] == 0) ++word;
  const int32_t place = word * 64 + std::countr_one(words[word]);
  CHECK(place < group.blocks_per_parent);
  words[word] |= uint64_t{1} << (place & 63);
  const int32_t free = group.blocks_per_parent - parent.used;
  ++parent.used;
  ++group.used;
  --group.free_in_bound;
  File(group, id, free, free - 1);
  return BlockId(id * group.blocks_per_parent + place);
}

void BlockPool::Release(GroupId group_id, BlockId block) {
  Group& group = At(group_id);
  const int32_t id = block.value / group.blocks_per_parent;
  const int32_t place = block.value % group.blocks_per_parent;
  CHECK(block.valid() && id > 0 && id <= parents_total_, "block {} of group {}", block.value,
        group_id.value);
  Parent& parent = parents_[static_cast<size_t>(id)];
  uint64_t& word = Words(id)[place / 64];
  const uint64_t bit = uint64_t{1} << (place & 63);
  CHECK(parent.group == group_id.value && (word & bit) != 0, "block {} of group {} is not in use",
        block.value, group_id.value);
  word &= ~bit;
  const int32_t free = group.blocks_per_parent - parent.used;
  --parent.used;
  --group.used;
  ++group.free_in_bound;
  File(group, id, free, free + 1);
  if (parent.used > 0) return;
  group.free_in_bound -= group.blocks_per_parent;
  parent.group = -1;
  empty_parents_.Insert(id);
}

Status BlockPool::Audit() const {
  const auto wrong = [](std::string message) {
    return Error{ErrorCode::kInternal, "cache accounting: " + std::move(message), ""};
  };
  std::vector<int64_t> used(groups_.size()), free(groups_.size());
  if (parents_[0].group != -1 || empty_parents_.Contains(0)) return wrong("the sink is in use");
  int32_t empty = 0;
  for (int32_t id = 0; id <= parents_total_; ++id) {
    const Parent& parent = parents_[static_cast<size_t>(id)];
    int32_t bits = 0;
    for (size_t w = 0; w < words_; ++w)
      bits += std::popcount(bits_[static_cast<size_t>(id) * words_ + w]);
    if (bits != parent.used) {
      return wrong(
          fmt::format("parent {} counts {} blocks, its map has {}", id, parent.used, bits));
    }
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
    if (left > 0 && (!group.parents_by_free[static_cast<size_t>(left)].Contains(id) ||
                     !group.levels.Contains(left))) {
      return wrong(fmt::format("parent {} with {} free blocks is not on offer", id, left));
    }
  }
  if (empty != empty_parents_.size()) return wrong(fmt::format("{} parents are empty", empty));
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (used[g] != groups_[g].used || free[g] != groups_[g].free_in_bound) {
      return wrong(fmt::format("group {} counts {} used and {} free blocks, recounted {} and {}", g,
                               groups_[g].used, groups_[g].free_in_bound, used[g], free[g]));
    }
  }
  return {};
}

}  // namespace braid
