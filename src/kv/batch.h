// A batch of changes in the form that gateways read: MessagePack of [ts, [event, ...], dp_rank]
// with events as arrays that begin with their name,
//   ["BlockStored", block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium,
//    lora_name, extra_keys], ["BlockRemoved", block_hashes, medium], ["AllBlocksCleared"].
// Readers of events as maps take this form, too. Pure.
#pragma once

#include <string>

#include "cache/prefix_changes.h"

namespace braid::kv {

// One event of each kind and, of stored blocks, one for each run of blocks that follow each other.
std::string EncodeBatch(const PrefixChanges& changes, double seconds, int32_t dp_rank);

}  // namespace braid::kv
