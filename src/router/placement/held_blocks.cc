// Hashes of other programs are names only: what they name is in the tokens.
#include "router/placement/held_blocks.h"

#include <span>

namespace braid {

int64_t HeldBlocks::size() const {
  int64_t blocks = 0;
  for (const auto& [number, rank] : ranks_) blocks += static_cast<int64_t>(rank.size());
  return blocks;
}

void HeldBlocks::Apply(const kv::EventBatch& batch, KnownPrefixes& known) {
  if (batch.dp_rank < 0) {
    for (auto& [number, rank] : ranks_) ClearRank(rank, known);
    return;
  }
  if (!ranks_.contains(batch.dp_rank) && ranks_.size() >= kRanksMax) return;
  Rank& rank = ranks_[batch.dp_rank];
  for (const auto& event : batch.events) {
    if (const auto* stored = std::get_if<kv::BlocksStored>(&event)) {
      Store(rank, *stored, known);
    } else if (const auto* removed = std::get_if<kv::BlocksRemoved>(&event)) {
      for (const uint64_t hash : removed->hashes) Remove(rank, hash, known);
    } else {
      ClearRank(rank, known);
    }
  }
  // Whether something follows a block is known when the whole batch is.
  for (const auto& event : batch.events) {
    const auto* stored = std::get_if<kv::BlocksStored>(&event);
    if (stored == nullptr || stored->hashes.empty()) continue;
    const auto mark = [&](uint64_t hash, int32_t children) {
      const auto at = rank.find(hash);
      const bool ends = at != rank.end() && !at->second.keys.empty() &&
                        (at->second.children == 0 || at->second.children >= children);
      if (ends) known.Store(at->second.keys.back(), true);
    };
    constexpr int32_t kParting = 2;
    mark(stored->hashes.back(), kParting);
    if (stored->parent) mark(*stored->parent, kParting);
  }
}

void HeldBlocks::Store(Rank& rank, const kv::BlocksStored& run, KnownPrefixes& known) {
  std::optional<uint64_t> before = run.parent;
  for (size_t i = 0; i < run.hashes.size(); ++i) {
    const uint64_t hash = run.hashes[i];
    const std::optional<uint64_t> parent_hash = std::exchange(before, hash);
    if (rank.contains(hash)) continue;
    if (static_cast<size_t>(size()) >= blocks_max_ || counts_.size() >= blocks_max_) return;
    Block block{.parent = parent_hash, .chain = {}, .tail = {}, .keys = {}};
    const auto parent = parent_hash ? rank.find(*parent_hash) : rank.end();
    if (parent != rank.end()) ++parent->second.children;
    block.named = !parent_hash || (parent != rank.end() && parent->second.named);
    Name(block, parent == rank.end() ? nullptr : &parent->second, run, i);
    for (const uint64_t key : block.keys) {
      if (++counts_[key] == 1) known.Store(key, false);
    }
    rank.emplace(hash, std::move(block));
  }
}

// The keys that end in a block.
void HeldBlocks::Name(Block& block, const Block* parent, const kv::BlocksStored& run,
                      size_t index) {
  const uint64_t hash = run.hashes[index];
  // What parts a block's prefixes from others with the same tokens is only in its hash.
  if (own_hashes_ || !run.shared) block.named = false;
  if (own_hashes_ || (!run.shared && run.block_tokens == kBlockTokens)) block.keys = {hash};
  if (!block.named) return;
  block.chain = parent == nullptr ? RootBlockKey({}) : parent->chain;
  if (parent != nullptr) block.tail = parent->tail;
  const auto size = static_cast<size_t>(run.block_tokens);
  for (const TokenId token : std::span(run.tokens).subspan(index * size, size)) {
    block.tail.push_back(token);
    if (block.tail.size() < kBlockTokens) continue;
    BlockTokens tokens;
    std::copy(block.tail.begin(), block.tail.end(), tokens.begin());
    block.chain = ChildBlockKey(block.chain, tokens);
    block.keys.push_back(block.chain.low);
    block.tail.clear();
  }
  own_hashes_ = run.block_tokens == kBlockTokens && block.keys == std::vector<uint64_t>{hash};
}

void HeldBlocks::Remove(Rank& rank, uint64_t hash, KnownPrefixes& known) {
  const auto at = rank.find(hash);
  if (at == rank.end()) return;
  const Block block = std::move(at->second);
  rank.erase(at);
  if (block.parent) {
    if (const auto parent = rank.find(*block.parent); parent != rank.end()) {
      --parent->second.children;
    }
  }
  ReleaseKeys(block, known);
}

void HeldBlocks::ReleaseKeys(const Block& block, KnownPrefixes& known) {
  for (const uint64_t key : block.keys) {
    const auto count = counts_.find(key);
    if (--count->second > 0) continue;
    counts_.erase(count);
    known.Remove(key);
  }
}

void HeldBlocks::ClearRank(Rank& rank, KnownPrefixes& known) {
  for (const auto& [hash, block] : rank) ReleaseKeys(block, known);
  rank = {};
}

}  // namespace braid
