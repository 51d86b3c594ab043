// What the cache is made of, in numbers: tokens, blocks and bytes meet only here. A group is one
// kind of storage (keys and values of the full-attention layers; recurrent state of the linear
// ones; a draft head's layers). All groups share one arena of equal pages; a group packs its
// blocks into pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/block.h"
#include "base/ids.h"
#include "base/math.h"
#include "base/result.h"

namespace braid {

enum class GroupKind : uint8_t {
  // One block per kBlockTokens tokens, all of them needed: attention reads every earlier block.
  kFull,
  // Entry n holds the state after (n+1)*kBlockTokens tokens once the sequence has got there, and
  // until
  // then the rows of the block in progress. A step over positions [a, b) reads entries a/64-1
  // (state)
  // and, if a is not a multiple of 64, a/64 (rows); it writes b/64-1 and, if b is not a multiple,
  // b/64.
  // Other entries may be holes.
  kState,
};

struct GroupGeometry {
  std::string name;
  GroupKind kind = GroupKind::kFull;
  int64_t block_bytes = 0;
  int32_t blocks_per_page = 1;
};

struct CacheGeometry {
  std::vector<GroupGeometry> groups;
  int64_t page_bytes = 0;  // >= block_bytes * blocks_per_page of every group
  int32_t pages = 0;       // page 0 is the sink: never owned, padding rows may read and write it
};

// Whether some group holds recurrent state.
bool HasState(const CacheGeometry& geometry);

// Refuses geometries that no arena can have: no group, sizes that do not fit a page, an arena in
// which a sequence of one block has no room. Everything below expects a geometry that passed.
Status CheckGeometry(const CacheGeometry& geometry);

// Ids are affine in (page, place in the page): block = page * blocks_per_page + place.
// The arena offset, in bytes, of a block of `group`; the sink's blocks are at the arena's start.
int64_t BlockBytesOffset(const CacheGeometry& geometry, GroupId group, BlockId block);

// How many blocks of each group, by group index.
struct BlockCounts {
  int32_t by_group[kCacheGroupsMax] = {};
  bool operator==(const BlockCounts&) const = default;
};

// State blocks that a sequence of `tokens` stored tokens holds at most between steps' plans: while
// its prompt is read, the state it started from, the state it reaches and the rows of the block in
// progress; afterwards the last two.
inline int32_t StateBlocksPrefill(int64_t tokens) {
  return static_cast<int32_t>(std::min<int64_t>(CeilDiv(tokens, kBlockTokens), 3));
}
inline int32_t StateBlocksDecode(int64_t tokens) {
  return static_cast<int32_t>(std::min<int64_t>(CeilDiv(tokens, kBlockTokens), 2));
}

// The blocks of a sequence of `tokens` stored tokens that runs alone.
BlockCounts BlocksOfSequence(const CacheGeometry& geometry, int64_t tokens);

// Pages that hold so many blocks when nothing else is in the arena.
int64_t PagesFor(const CacheGeometry& geometry, const BlockCounts& blocks);

// The longest sequence, in stored tokens, that the arena holds when it runs alone.
int64_t SequenceTokensMax(const CacheGeometry& geometry);

// How many conversations of so many stored tokens stay resumable when they take turns: each keeps
// its whole blocks and the states at its end and at its last prompt's end, and there is room for
// one to run. 0 for less than a block. A promise where at most one group packs several blocks into
// a page, as in arenas for one model; with more, packing may leave holes.
int64_t ResumableConversations(const CacheGeometry& geometry, int64_t tokens);

}  // namespace braid
