// Which blocks a hand-off moves, as both engines derive them from the cache's geometry and the
// tokens. Pure functions.
#pragma once

#include <vector>

#include "cache/geometry.h"
#include "handoff/message.h"

namespace braid::handoff {

// The blocks that hold tokens [begin, end) for a sequence that has what comes before: of groups
// that attention reads all of them, of states the one of the last boundary and the rows behind it.
// `begin` is a multiple of kBlockTokens.
std::vector<PartKey> PartsOf(const CacheGeometry& geometry, int32_t begin, int32_t end);

// Of these, the ones that are final once tokens [0, computed) are in place, computed < end: whole
// blocks of groups that attention reads.
bool FinalAt(const CacheGeometry& geometry, PartKey part, int32_t computed);

}  // namespace braid::handoff
