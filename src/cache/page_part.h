// What moves between the arena and other places: one kind of storage for 64 tokens of a sequence,
// that is, one block of every full group or one of every state group. Plain values; any thread.
#pragma once

#include <cstdint>

#include "base/block.h"
#include "base/ids.h"
#include "cache/geometry.h"
#include "cache/page_key.h"

namespace braid {

// The blocks of one part, by group index; those of other groups are invalid.
struct PartBlocks {
  BlockId by_group[kCacheGroupsMax];
};

// The part of tokens [64 * index, 64 * index + 64) of a sequence.
struct PagePart {
  int32_t index = 0;
  GroupKind kind = GroupKind::kFull;
  PartBlocks blocks;
  PageKey key;  // where a tier finds it; of other places all zero
};

// Where parts begin in the files of a tier.
inline constexpr int64_t kStoredAlignment = 4096;

// Bytes of a part: its blocks, one after the other in the order of the groups.
int64_t PartBytes(const CacheGeometry& geometry, GroupKind kind);

}  // namespace braid
