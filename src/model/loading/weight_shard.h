// The part of a weight that one of several ranks holds: rows of every piece, columns of every row,
// or whole experts, as WeightSpec::shard says. Only its bytes of the checkpoint are read. Pure; any
// thread.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/loading/weight_binding.h"

namespace braid {

struct RankOf {
  int32_t rank = 0;
  int32_t count = 1;
};

// What rank `of` reads of a weight, in the order of the weight; `at` counts from the part's start.
// An Error if the ranks cannot have equal parts. Of columns of a quantised weight, whose rows are
// decoded as a whole, the runs are whole rows.
Result<std::vector<SourceRun>> ShardRuns(const BoundWeight& weight, RankOf of);

// The part as `weight.dtype`, row-major. Of kColumns: [rows, k / of.count].
Result<std::vector<std::byte>> ReadShard(const BoundWeight& weight, RankOf of);

}  // namespace braid
