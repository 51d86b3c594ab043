// Which blocks of the arena are free, locked (somebody needs them) or cached (kept as long as
// nobody needs the room). A page is bound to one group from its first block in use to its last; a
// group's next block comes from its fullest bound page, lowest id first, and only then from the
// lowest empty page. Hence the same calls give the same ids, everywhere. Engine thread; ids only.
//
// Invariants: page 0 is never handed out; a block has one owner; every operation is O(log
// pages).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cache/geometry.h"
#include "cache/id_set.h"

namespace braid {

class BlockPool {
 public:
  // The geometry has passed CheckGeometry.
  explicit BlockPool(const CacheGeometry& geometry);

  // Whether so many blocks of every group can be taken, all of them together.
  bool CanTake(const BlockCounts& blocks) const;
  // The same once every cached block has been released.
  bool CanMake(const BlockCounts& blocks) const;
  // One block, locked; CanTake must have said yes.
  BlockId Take(GroupId group);
  // This very block, which must be free; it becomes cached.
  void Claim(GroupId group, BlockId block);
  // A block in use becomes cached or locked; it must not be so already.
  void SetCached(GroupId group, BlockId block, bool cached);
  // Gives a block back. Returning a block that is not in use stops the program.
  void Release(GroupId group, BlockId block);

  int32_t pages_total() const { return pages_total_; }
  // Pages with a locked block; pages whose blocks in use are all cached.
  int32_t pages_used() const { return locked_pages_; }
  int32_t pages_cached() const { return pages_total_ - empty_pages_.size() - locked_pages_; }
  int64_t blocks_used(GroupId group) const { return At(group).used - At(group).cached; }
  int64_t blocks_cached(GroupId group) const { return At(group).cached; }
  bool IsCached(GroupId group, BlockId block) const;

  // From now on, or not, remembers what is released, for whoever wants to make it unusable.
  void RememberFreed(bool remember) { remember_freed_ = remember; }
  // What was released since the last call, in order. Some of it may be in use again.
  std::vector<std::pair<GroupId, BlockId>> TakeFreed() { return std::exchange(freed_, {}); }

  // Recounts everything; an error that names the first figure that does not agree.
  Status Audit() const;

 private:
  struct Group {
    int32_t blocks_per_page;
    int64_t used = 0;
    int64_t cached = 0;                // of those
    int64_t free_in_bound = 0;         // free blocks in bound pages
    int64_t free_in_locked = 0;        // blocks not locked in pages that have locked ones
    IdSet levels;                      // n: some bound page has n free blocks, 0 < n < all
    std::vector<IdSet> pages_by_free;  // [n]: the bound pages with n free blocks
  };
  struct Page {
    int32_t group = -1;  // none: empty
    int32_t used = 0;
    int32_t locked = 0;
  };

  Group& At(GroupId group) { return groups_[static_cast<size_t>(group.value)]; }
  const Group& At(GroupId group) const { return groups_[static_cast<size_t>(group.value)]; }
  uint64_t* Words(int32_t page) { return &bits_[static_cast<size_t>(page) * words_]; }
  // The bit of a block in a map, and its page; stops the program unless the block can be owned.
  struct Place {
    int32_t page;
    size_t word;
    uint64_t bit;
  };
  Place PlaceOf(GroupId group, BlockId block) const;
  void MarkUsed(GroupId group, const Place& place);
  void CountLocked(Group& group, Page& page, int32_t change);
  // Moves a bound page between the sets of its group after its count of used blocks changed.
  void File(Group& group, int32_t page, int32_t free_before, int32_t free_after);

  int32_t pages_total_;  // without the sink
  size_t words_;         // 64-bit words of one page's map of used places
  std::vector<Group> groups_;
  std::vector<Page> pages_;
  std::vector<uint64_t> bits_;         // in use
  std::vector<uint64_t> cached_bits_;  // of those, cached
  int32_t locked_pages_ = 0;
  IdSet empty_pages_;
  bool remember_freed_ = false;
  std::vector<std::pair<GroupId, BlockId>> freed_;
};

}  // namespace braid
