// A batch of changes in the form that gateways exchange: MessagePack of [ts, [event, ...], dp_rank]
// with events as arrays that begin with their name,
//   ["BlockStored", block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium,
//    lora_name, extra_keys], ["BlockRemoved", block_hashes, medium], ["AllBlocksCleared"].
// Readers of events as maps take this form, too, and both are read here: fields that are missing at
// the end, or more of them, are right. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cache/prefix_changes.h"

namespace braid::kv {

// One event of each kind and, of stored blocks, one for each run of blocks that follow each other.
std::string EncodeBatch(const PrefixChanges& changes, double seconds, int32_t dp_rank);

// Blocks that follow each other.
struct BlocksStored {
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;  // the block before the first; none: there is none
  std::vector<TokenId> tokens;     // block_tokens for each
  int32_t block_tokens = 0;
  bool shared = true;  // the tokens alone name them
  bool operator==(const BlocksStored&) const = default;
};
struct BlocksRemoved {
  std::vector<uint64_t> hashes;
  bool operator==(const BlocksRemoved&) const = default;
};
struct BlocksCleared {
  bool operator==(const BlocksCleared&) const = default;
};
struct EventBatch {
  int32_t dp_rank = 0;
  std::vector<std::variant<BlocksStored, BlocksRemoved, BlocksCleared>> events;
  bool operator==(const EventBatch&) const = default;
};

// Blocks in other memory than the engine's own, and those of adapters, are left out. Hashes that
// are bytes become numbers. kInvalid if it is no such batch.
Result<EventBatch> DecodeBatch(std::string_view bytes);

}  // namespace braid::kv
