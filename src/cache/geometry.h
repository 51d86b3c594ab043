// What the cache is made of, in numbers: tokens, blocks and bytes meet only here. A group is one kind of
// storage (keys and values of the full-attention layers; recurrent state of the linear ones; a draft
// head's layers). All groups share one arena of equal parents; a group packs its blocks into parents.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/block.h"
#include "base/ids.h"

namespace braid {

enum class GroupKind : uint8_t {
  // One block per kBlockTokens tokens, all of them needed: attention reads every earlier block.
  kFull,
  // Entry n holds the state after (n+1)*kBlockTokens tokens once the sequence has got there, and until
  // then the rows of the block in progress. A step over positions [a, b) reads entries a/64-1 (state)
  // and, if a is not a multiple of 64, a/64 (rows); it writes b/64-1 and, if b is not a multiple, b/64.
  // Other entries may be holes.
  kState,
};

struct GroupGeometry {
  std::string name;
  GroupKind kind = GroupKind::kFull;
  int64_t block_bytes = 0;
  int32_t blocks_per_parent = 1;
};

struct CacheGeometry {
  std::vector<GroupGeometry> groups;
  int64_t parent_bytes = 0;  // >= block_bytes * blocks_per_parent of every group
  int32_t parents = 0;       // parent 0 is the sink: never owned, padding rows may read and write it
};

}  // namespace braid
