// What an engine's cache holds by its own word (kv_events/): its published blocks, by the keys that
// prompts of tokens have here (prompt_blocks.h). An engine of this program names blocks by the same
// keys; of others they are computed from the blocks' tokens, whatever the blocks' size.
// Pure; not thread-safe.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cache/block_keys.h"
#include "kv_events/batch.h"
#include "router/placement/known_prefixes.h"

namespace braid {

class HeldBlocks {
 public:
  static constexpr size_t kBlocksMax = 1 << 20, kRanksMax = 64;

  // Of all ranks together, `blocks_max` blocks are followed, and as many keys.
  explicit HeldBlocks(size_t blocks_max = kBlocksMax) : blocks_max_(blocks_max) {}

  // What a batch says, into what is known of the engine. A block is resumable that nothing follows,
  // for a state at it is why it was published, and one where prompts part.
  void Apply(const kv::EventBatch& batch, KnownPrefixes& known);
  void Clear() { *this = HeldBlocks(blocks_max_); }
  int64_t size() const;

 private:
  struct Block {
    std::optional<uint64_t> parent;
    int32_t children = 0;
    bool named = true;           // false: what came before it is not known
    BlockKey chain;              // of the whole blocks of ours up to its end
    std::vector<TokenId> tail;   // the tokens behind these
    std::vector<uint64_t> keys;  // of ours that end in it
  };
  using Rank = boost::unordered_flat_map<uint64_t, Block>;

  void Store(Rank& rank, const kv::BlocksStored& run, KnownPrefixes& known);
  void Name(Block& block, const Block* parent, const kv::BlocksStored& run, size_t index);
  void Remove(Rank& rank, uint64_t hash, KnownPrefixes& known);
  void ClearRank(Rank& rank, KnownPrefixes& known);
  // A rank has the block no more.
  void ReleaseKeys(const Block& block, KnownPrefixes& known);

  size_t blocks_max_;
  bool own_hashes_ = false;  // the engine's hashes are our keys
  std::map<int32_t, Rank> ranks_;
  boost::unordered_flat_map<uint64_t, int32_t> counts_;  // of the ranks' blocks with a key
};

}  // namespace braid
