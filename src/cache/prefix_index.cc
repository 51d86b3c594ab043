// The trie, its hash chains and the order of eviction; see the header. Engine thread.
#include "cache/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/rng.h"
#include "cache/block_keys.h"

namespace braid {
namespace {

constexpr size_t kSlotsMin = 1024;
constexpr size_t kSlotsPerNode = 2;  // at least
// How many evicted prefixes are remembered, to say so when they are asked for again.
constexpr size_t kEvictedKeys = 16384;

uint64_t Mix(uint64_t a, uint64_t b) {
  return (std::rotl(a, 27) ^ b) * 0x9fb21c651e98df25ull + 0x52dce729ull;
}

}  // namespace

const char* NameOf(ReuseStop stop) {
  switch (stop) {
    case ReuseStop::kOff:
      return "off";
    case ReuseStop::kComplete:
      return "complete";
    case ReuseStop::kNeverSeen:
      return "never_seen";
    case ReuseStop::kEvicted:
      return "evicted";
    case ReuseStop::kNoSnapshot:
      return "no_snapshot";
  }
  CheckFailed(__FILE__, __LINE__, "a ReuseStop", "");
}

PrefixIndex::PrefixIndex(const CacheGeometry& geometry, const PageDirectory* tier)
    : tier_(tier), slots_(kSlotsMin), evicted_(kEvictedKeys) {
  for (const GroupGeometry& g : geometry.groups) {
    has_full_ |= g.kind == GroupKind::kFull;
    has_state_ |= g.kind == GroupKind::kState;
  }
}

PrefixIndex::RootName PrefixIndex::NameOf(const PrefixSpace& space) {
  return {std::string(space.tenant), std::string(space.salt), space.dp_rank};
}

BlockKey RootBlockKey(const PrefixSpace& space) {
  // Without the data-parallel rank: each has an index of its own, so one set of keys serves all.
  BlockKey key{0x243f6a8885a308d3ull, 0x13198a2e03707344ull};
  for (const std::string_view name : {space.tenant, space.salt}) {
    for (const char c : name) {
      key.low = Mix(key.low, static_cast<unsigned char>(c));
      key.high = Mix(key.high, key.low);
    }
    key.low = Mix(key.low, name.size());
  }
  return {MixBits(key.low), MixBits(key.high + 1)};
}

BlockKey ChildBlockKey(const BlockKey& parent, const BlockTokens& tokens) {
  uint64_t a = parent.low, b = parent.high;
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(tokens[i])) << 32 |
                          static_cast<uint32_t>(tokens[i + 1]);
    a = Mix(a, pair);
    b = Mix(b, pair ^ 0xa4093822299f31d0ull);
  }
  return {MixBits(a ^ std::rotl(b, 31)), MixBits(b + parent.low)};
}

PrefixIndex::Key PrefixIndex::RootKey(const PrefixSpace& space) { return RootBlockKey(space); }

PrefixIndex::Key PrefixIndex::ChildKey(const Key& parent, const BlockTokens& tokens) {
  return ChildBlockKey(parent, tokens);
}

PrefixNodeId PrefixIndex::Find(PrefixNodeId parent, const Key& key,
                               const BlockTokens& tokens) const {
  const uint32_t hash = static_cast<uint32_t>(key.low);
  for (size_t i = Home(hash); slots_[i].node.valid(); i = After(i)) {
    if (slots_[i].hash != hash) continue;
    const PrefixNodeId at = slots_[i].node;
    const Node& node = At(at);
    if (node.key != key) continue;
    if (node.parent == parent && node.tokens == tokens) return at;
  }
  return {};
}

void PrefixIndex::FillSlot(uint32_t hash, PrefixNodeId node) {
  size_t at = Home(hash);
  while (slots_[at].node.valid()) at = After(at);
  slots_[at] = {hash, node};
}

// What comes after in the run moves up where it may, so that the run has no gap.
void PrefixIndex::EmptySlot(PrefixNodeId node) {
  size_t gap = Home(static_cast<uint32_t>(At(node).key.low));
  while (slots_[gap].node != node) gap = After(gap);
  for (size_t i = After(gap); slots_[i].node.valid(); i = After(i)) {
    const size_t mask = slots_.size() - 1;
    const size_t from_home = (i - Home(slots_[i].hash)) & mask;
    if (from_home < ((i - gap) & mask)) continue;
    slots_[gap] = slots_[i];
    gap = i;
  }
  slots_[gap] = {};
}

PrefixMatch PrefixIndex::Match(const PrefixSpace& space, const TokenPieces& tokens, int32_t limit,
                               PrefixKeys& keys) const {
  PrefixMatch match{.stop = ReuseStop::kComplete, .nodes = {}};
  const int32_t blocks = std::min(tokens.size() - 1, limit) / kBlockTokens;
  const auto root = roots_.find(NameOf(space));
  PrefixNodeId at = root == roots_.end() ? PrefixNodeId() : root->second;
  BlockTokens block;
  for (int32_t i = 0; i < blocks; ++i) {
    tokens.Copy(i, block);
    const auto n = static_cast<size_t>(i);
    if (n == keys.blocks.size()) {
      keys.blocks.push_back(ChildKey(n == 0 ? RootKey(space) : keys.blocks[n - 1], block));
    }
    const Key& key = keys.blocks[n];
    if (at.valid()) at = Find(at, key, block);
    if (!at.valid() || !Usable(At(at))) {
      const Evicted& ghost = evicted_[key.high % kEvictedKeys];
      const bool known = at.valid() && At(at).full.was;
      const bool evicted = known || ghost.key == key;
      match.stop = evicted ? ReuseStop::kEvicted : ReuseStop::kNeverSeen;
      if (evicted) match.evicted_epoch = known ? At(at).full.epochs.used : ghost.used;
      break;
    }
    match.nodes.push_back(at);
    match.known += kBlockTokens;
    if (!has_state_ || At(at).state.carried) match.tokens = match.known;
  }
  if (match.tokens < match.known && match.stop != ReuseStop::kEvicted) {
    const Part& state = At(match.nodes.back()).state;
    match.stop = state.was ? ReuseStop::kEvicted : ReuseStop::kNoSnapshot;
    if (state.was) match.evicted_epoch = state.epochs.used;
  }
  match.stored = match.tokens;
  if (tier_ != nullptr && tier_->parts() > 0) FindStored(space, tokens, blocks, keys, match);
  return match;
}

// How far the tier goes on from what the arena has: without a gap in keys and values, to a state.
void PrefixIndex::FindStored(const PrefixSpace& space, const TokenPieces& tokens, int32_t blocks,
                             PrefixKeys& keys, PrefixMatch& match) const {
  const auto known = static_cast<int32_t>(match.nodes.size());
  BlockTokens block;
  for (int32_t i = 0; i < blocks; ++i) {
    const auto n = static_cast<size_t>(i);
    if (n == keys.pages.size()) {
      tokens.Copy(i, block);
      keys.pages.push_back(
          ChildPageKey(n == 0 ? RootPageKey(space.tenant, space.salt) : keys.pages[n - 1], block));
    }
    if ((i + 1) * kBlockTokens <= match.tokens) continue;
    const PageKey& page = keys.pages[n];
    if (i >= known && has_full_ && !tier_->Has(page, GroupKind::kFull)) break;
    if (!has_state_ || tier_->Has(page, GroupKind::kState)) match.stored = (i + 1) * kBlockTokens;
  }
}

PrefixNodeId PrefixIndex::NewNode() {
  ++nodes_alive_;
  if (free_nodes_.empty()) return nodes_.emplace_back();
  const PrefixNodeId id = free_nodes_.back();
  free_nodes_.pop_back();
  At(id) = Node();
  return id;
}

// Twice the slots; the cost is spread over the insertions that filled the old ones.
void PrefixIndex::Grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.node.valid()) FillSlot(slot.hash, slot.node);
  }
}

PrefixNodeId PrefixIndex::Root(const PrefixSpace& space) {
  const auto [at, inserted] = roots_.try_emplace(NameOf(space));
  if (inserted) {
    at->second = NewNode();
    At(at->second).alive = true;
    At(at->second).key = RootKey(space);
    At(at->second).shared = space.tenant.empty() && space.salt.empty();
    if (tier_ != nullptr) At(at->second).page = RootPageKey(space.tenant, space.salt);
    root_places_.emplace(at->second, at);
  }
  Refer(at->second);
  return at->second;
}

PrefixNodeId PrefixIndex::Child(PrefixNodeId parent, const BlockTokens& tokens) {
  const Key key = ChildKey(At(parent).key, tokens);
  PrefixNodeId id = Find(parent, key, tokens);
  if (!id.valid()) {
    if (static_cast<size_t>(nodes_alive_) * kSlotsPerNode > slots_.size()) Grow();
    id = NewNode();
    Node& node = At(id);
    node.alive = true;
    node.parent = parent;
    node.key = key;
    if (tier_ != nullptr) node.page = ChildPageKey(At(parent).page, tokens);
    node.shared = At(parent).shared;
    node.depth = At(parent).depth + 1;
    node.tokens = tokens;
    FillSlot(static_cast<uint32_t>(key.low), id);
    ++At(parent).children;
  }
  Refer(id);
  return id;
}

void PrefixIndex::Unrefer(PrefixNodeId node) {
  CHECK(At(node).references > 0);
  --At(node).references;
  Prune(node);
}

// Removes a node that nothing needs, then its parent if that was the last reason for it, and so on.
void PrefixIndex::Prune(PrefixNodeId id) {
  while (id.valid()) {
    Node& node = At(id);
    if (node.references > 0 || node.children > 0 || node.full.carried || node.state.carried) return;
    if (node.parent.valid()) {
      EmptySlot(id);
      --At(node.parent).children;
    } else {
      const auto place = root_places_.find(id);
      roots_.erase(place->second);
      root_places_.erase(place);
    }
    const PrefixNodeId parent = node.parent;
    node.alive = false;
    free_nodes_.push_back(id);
    --nodes_alive_;
    id = parent;
  }
}

bool PrefixIndex::Evictable(const Node& node, GroupKind kind) const {
  const Part& part = node.part(kind);
  if (!part.carried) return false;
  if (part.pins > 0) return false;
  return kind == GroupKind::kState || node.full_children == 0;
}

void PrefixIndex::File(PrefixNodeId id, GroupKind kind) {
  const Node& node = At(id);
  const bool state = kind == GroupKind::kState;
  const bool passing = state && Passing(node);
  const EvictionKey key{.tier = passing ? 0 : 1,
                        .depth = passing ? node.depth : -node.depth,
                        .epoch = node.part(kind).epochs.order,
                        .node = id,
                        .part = kind};
  const bool wanted = Evictable(node, kind);
  const EvictionKey* filed = victims_.Find(id, kind);
  if (filed != nullptr && wanted && *filed == key) return;
  if (filed != nullptr) victims_.Erase(id, kind);
  if (wanted) victims_.Insert(key);
}

void PrefixIndex::Put(PrefixNodeId id, GroupKind kind, const PartBlocks& blocks,
                      PartEpochs epochs) {
  Node& node = At(id);
  Part& part = node.part(kind);
  CHECK(!part.carried, "a part is published twice");
  if (kind == GroupKind::kFull) {
    CHECK(node.depth == 1 || At(node.parent).full.carried, "a prefix with a gap");
    if (!part.carried) ++At(node.parent).full_children;
    File(node.parent, kind);
  } else {
    node.hit = node.branch = node.prompt_end = node.superseded = false;
  }
  for (size_t g = 0; g < kCacheGroupsMax; ++g) {
    if (blocks.by_group[g].valid()) node.blocks.by_group[g] = blocks.by_group[g];
  }
  parts_[kind == GroupKind::kState] += !part.carried;
  part.carried = true;
  part.pins = 1;
  part.epochs = epochs;
  File(id, kind);
  Announce(id, kind);
}

void PrefixIndex::Replace(PrefixNodeId id, const PartBlocks& blocks, PartEpochs epochs) {
  Part& full = At(id).full;
  CHECK(full.carried && full.pins == 0, "blocks in use are replaced");
  for (size_t g = 0; g < kCacheGroupsMax; ++g) {
    if (blocks.by_group[g].valid()) At(id).blocks.by_group[g] = blocks.by_group[g];
  }
  full.pins = 1;
  full.epochs = {std::max(full.epochs.order, epochs.order),
                 std::max(full.epochs.used, epochs.used)};
  File(id, GroupKind::kFull);
}

bool PrefixIndex::Pin(PrefixNodeId id, GroupKind kind) {
  Part& part = At(id).part(kind);
  CHECK(part.carried, "a part that is not there is pinned");
  const bool first = part.pins++ == 0;
  if (first) File(id, kind);
  return first;
}

bool PrefixIndex::Unpin(PrefixNodeId id, GroupKind kind) {
  Part& part = At(id).part(kind);
  CHECK(part.carried && part.pins > 0, "a part that is not pinned is unpinned");
  if (--part.pins > 0) return false;
  File(id, kind);
  return true;
}

void PrefixIndex::Touch(PrefixNodeId id, GroupKind kind, int64_t epoch) {
  Part& part = At(id).part(kind);
  if (!part.carried) return;
  part.epochs = {epoch, epoch};
  File(id, kind);
}

void PrefixIndex::MarkHit(PrefixNodeId id) {
  At(id).hit = true;
  File(id, GroupKind::kState);
}

void PrefixIndex::MarkBranch(PrefixNodeId id) {
  At(id).branch = true;
  File(id, GroupKind::kState);
}

void PrefixIndex::MarkPromptEnd(PrefixNodeId id) {
  At(id).prompt_end = true;
  File(id, GroupKind::kState);
}

void PrefixIndex::MarkPassed(PrefixNodeId id) {
  if (!At(id).prompt_end) return;
  At(id).prompt_end = false;
  File(id, GroupKind::kState);
}

void PrefixIndex::MarkSuperseded(PrefixNodeId id) {
  At(id).superseded = true;
  File(id, GroupKind::kState);
}

void PrefixIndex::Remove(PrefixNodeId id, GroupKind kind) {
  Node& node = At(id);
  Part& part = node.part(kind);
  part.carried = false;
  part.was = true;
  --parts_[kind == GroupKind::kState];
  Announce(id, kind);
  File(id, kind);
  if (kind == GroupKind::kState) return;
  --At(node.parent).full_children;
  File(node.parent, kind);
}

PrefixIndex::Victim PrefixIndex::TakePart(PrefixNodeId id, GroupKind kind) {
  const Node& node = At(id);
  CHECK(Evictable(node, kind), "a part in use is evicted");
  Victim victim{
      .node = id, .part = kind, .blocks = node.blocks, .used = node.part(kind).epochs.used};
  Refer(id);
  Remove(id, kind);
  return victim;
}

std::optional<PrefixIndex::Victim> PrefixIndex::TakeVictim() {
  if (victims_.empty()) return {};
  const EvictionKey& first = victims_.first();
  // A state alone would be of no use.
  if (first.part == GroupKind::kFull && Evictable(At(first.node), GroupKind::kState)) {
    return TakePart(first.node, GroupKind::kState);
  }
  return TakePart(first.node, first.part);
}

bool PrefixIndex::Restorable(const Victim& victim) const {
  const Node& node = At(victim.node);
  if (victim.part == GroupKind::kState) return Usable(node);
  return node.depth == 1 || At(node.parent).full.carried;
}

void PrefixIndex::Restore(const Victim& victim) {
  Node& node = At(victim.node);
  Part& part = node.part(victim.part);
  part.carried = true;
  part.was = false;
  ++parts_[victim.part == GroupKind::kState];
  if (victim.part == GroupKind::kFull) {
    ++At(node.parent).full_children;
    File(node.parent, GroupKind::kFull);
  }
  File(victim.node, victim.part);
  Announce(victim.node, victim.part);
  Unrefer(victim.node);
}

void PrefixIndex::Forget(const Victim& victim) {
  const Key& key = At(victim.node).key;
  if (victim.part == GroupKind::kFull) evicted_[key.high % kEvictedKeys] = {key, victim.used};
  Unrefer(victim.node);
}

void PrefixIndex::Announce(PrefixNodeId id, GroupKind kind) {
  if (!journal_) return;
  std::vector<PrefixNodeId> changed = {id};
  if (kind == (has_state_ ? GroupKind::kState : GroupKind::kFull)) {
    const int32_t by = At(id).part(kind).carried ? 1 : -1;
    for (PrefixNodeId at = id; at.valid(); at = At(at).parent) {
      Node& node = At(at);
      const bool before = node.resumable_ends > 0;
      node.resumable_ends += by;
      if ((node.resumable_ends > 0) == before) break;
      changed.push_back(at);
    }
    // What is stored is stored from the first block on, what is removed from the last.
    if (by > 0) std::reverse(changed.begin(), changed.end());
  }
  for (const PrefixNodeId at : changed) AnnounceNode(at);
}

void PrefixIndex::AnnounceNode(PrefixNodeId id) {
  Node& node = At(id);
  const bool stored = node.depth > 0 && node.resumable_ends > 0 && Usable(node);
  if (std::exchange(node.announced, stored) == stored) return;
  if (!stored) return journal_->Remove(node.key.low);
  StoredBlock block{.hash = node.key.low, .shared = node.shared, .tokens = node.tokens};
  if (node.depth > 1) block.parent = At(node.parent).key.low;
  journal_->Store(block);
}

Status PrefixIndex::Audit() const {
  const auto wrong = [](std::string message) {
    return Error{ErrorCode::kInternal, "prefix index: " + std::move(message), ""};
  };
  IdVector<PrefixNodeId, int32_t> children(nodes_.size()), full_children(nodes_.size());
  int64_t alive = 0, filed = 0;
  for (const PrefixNodeId id : nodes_.ids()) {
    const Node& node = nodes_[id];
    if (!node.alive) continue;
    ++alive;
    for (GroupKind kind : {GroupKind::kFull, GroupKind::kState}) {
      const Part& part = node.part(kind);
      const bool wanted = Evictable(node, kind);
      filed += wanted;
      if (wanted != (victims_.Find(id, kind) != nullptr)) {
        return wrong(fmt::format("node {} is filed wrongly for eviction", id.value));
      }
      if (!part.carried && part.pins > 0)
        return wrong(fmt::format("node {}: stray pins", id.value));
    }
    if (!node.parent.valid()) continue;
    ++children[node.parent];
    full_children[node.parent] += node.full.carried;
    if (!At(node.parent).alive) return wrong(fmt::format("node {} has a dead parent", id.value));
    if (node.full.carried && node.depth > 1 && !At(node.parent).full.carried) {
      return wrong(fmt::format("node {} carries blocks behind a gap", id.value));
    }
  }
  for (const PrefixNodeId id : nodes_.ids()) {
    const Node& node = nodes_[id];
    if (!node.alive) continue;
    if (children[id] != node.children || full_children[id] != node.full_children) {
      return wrong(fmt::format("node {} counts its children wrongly", id.value));
    }
  }
  if (alive != nodes_alive_ || filed != static_cast<int64_t>(victims_.size())) {
    return wrong(fmt::format("{} nodes and {} victims counted, {} and {} kept", alive, filed,
                             nodes_alive_, victims_.size()));
  }
  return {};
}

}  // namespace braid
