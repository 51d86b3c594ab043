// The keys of blocks, for programs that place requests by what caches hold: StoredBlock::hash is
// the lower half. A change to them is one of what gateways know of engines. Pure; prefix_index.cc
// has the bodies.
#pragma once

#include "cache/prefix_index.h"
#include "cache/prefix_match.h"

namespace braid {

// Of a space, and of the block after another one.
BlockKey RootBlockKey(const PrefixSpace& space);
BlockKey ChildBlockKey(const BlockKey& parent, const BlockTokens& tokens);

}  // namespace braid
