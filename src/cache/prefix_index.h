// What is stored of which prefixes: a trie of blocks. A node is a block of tokens after its parent,
// exactly: it is found by a 128-bit hash of everything before it and then compared, token by token.
// A node may carry two parts: one block of every full group, and one of every state group. Engine
// thread; ids only.
//
// Invariants: a node that carries the full part has a parent that does; a pinned part stays; a node
// lives as long as it carries a part, has children or is referred to. Every operation is O(log n)
// in the number of nodes, and none depends on addresses.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/geometry.h"
#include "cache/page_directory.h"
#include "cache/page_part.h"
#include "cache/prefix_changes.h"
#include "cache/prefix_match.h"
#include "cache/victim_queue.h"

namespace braid {

// What a prefix is found by before it is compared: a chained hash of everything up to the end of a
// block.
struct BlockKey {
  uint64_t low = 0, high = 0;
  bool operator==(const BlockKey&) const = default;
};

// The keys of a sequence's whole blocks, as far as a search has needed them. They belong to one
// tenant, salt and text; the text may grow. A search that is repeated hashes nothing again.
struct PrefixKeys {
  std::vector<BlockKey> blocks;
  std::vector<PageKey> pages;  // only where there is a tier
};

class PrefixIndex {
 public:
  // The geometry outlives the index, and so does the directory of the tier below; null: there is
  // none.
  explicit PrefixIndex(const CacheGeometry& geometry, const PageDirectory* tier = nullptr);

  // The deepest boundary at which every group can resume, with at least one of the tokens left and
  // none reused past `limit`; and the deepest that can be reached with what the tier has. Changes
  // nothing but `keys`, which it extends.
  PrefixMatch Match(const PrefixSpace& space, const TokenPieces& tokens, int32_t limit,
                    PrefixKeys& keys) const;

  // The node of a space, or of a block after `parent`; made when absent. The caller refers to it.
  PrefixNodeId Root(const PrefixSpace& space);
  PrefixNodeId Child(PrefixNodeId parent, const BlockTokens& tokens);
  void Refer(PrefixNodeId node) { ++At(node).references; }
  void Unrefer(PrefixNodeId node);

  bool Carries(PrefixNodeId node, GroupKind part) const { return At(node).part(part).carried; }
  const PartBlocks& Blocks(PrefixNodeId node) const { return At(node).blocks; }
  // The node takes a part that it does not carry, pinned once.
  void Put(PrefixNodeId node, GroupKind part, const PartBlocks& blocks, PartEpochs epochs);
  // Other blocks take the place of a full part that is not pinned; pinned once.
  void Replace(PrefixNodeId node, const PartBlocks& blocks, PartEpochs epochs);
  // True when the part was not pinned before; is not pinned any more.
  bool Pin(PrefixNodeId node, GroupKind part);
  bool Unpin(PrefixNodeId node, GroupKind part);
  int32_t pins(PrefixNodeId node, GroupKind part) const { return At(node).part(part).pins; }
  // A request of this epoch uses the part: both of the part's epochs are this one.
  void Touch(PrefixNodeId node, GroupKind part, int64_t epoch);
  // What a snapshot is worth: somebody resumed from it; it is a branch point that a second request
  // revealed; a prompt ends there, so the answer can be regenerated; somebody went on from beyond
  // that end, so it no longer counts as one; a deeper one of the same sequence exists.
  void MarkHit(PrefixNodeId node);
  void MarkBranch(PrefixNodeId node);
  void MarkPromptEnd(PrefixNodeId node);
  void MarkPassed(PrefixNodeId node);
  void MarkSuperseded(PrefixNodeId node);

  // Eviction takes, of what is not pinned: first the passing snapshots, which a deeper one replaces
  // and which are neither used nor branch points nor prompt ends; then all the rest. Within both it
  // goes by the order of their epochs, lowest first; of one request's passing snapshots it takes
  // the shallowest first, of the rest the deepest.
  struct Victim {
    PrefixNodeId node;  // referred to until it is Restored or Forgotten
    GroupKind part = GroupKind::kFull;
    PartBlocks blocks;
    int64_t used = 0;
  };
  std::optional<Victim> TakeVictim();
  // False when the part cannot stand alone: what it needs has been evicted meanwhile.
  bool Restorable(const Victim& victim) const;
  void Restore(const Victim& victim);
  void Forget(const Victim& victim);
  // Takes a part that is not pinned (and, if full, has nothing behind it) out of turn.
  Victim TakePart(PrefixNodeId node, GroupKind part);

  // Of a node on its way to a tier.
  PrefixNodeId parent(PrefixNodeId node) const { return At(node).parent; }  // none: a root
  int32_t depth(PrefixNodeId node) const { return At(node).depth; }
  const PageKey& page(PrefixNodeId node) const { return At(node).page; }
  // Carries a state that is not merely passed by.
  bool KeepsState(PrefixNodeId node) const { return At(node).state.carried && !Passing(At(node)); }

  // From now on, before the first Root, the index keeps a journal of what can be resumed behind.
  void RememberChanges() { journal_.emplace(); }
  PrefixChanges TakeChanges() { return journal_ ? journal_->Take() : PrefixChanges(); }

  int64_t parts(GroupKind part) const { return parts_[part == GroupKind::kState]; }
  int64_t nodes() const { return nodes_alive_; }

  // Calls f(node, part, blocks, pins) for every part that is carried. Linear; for audits.
  template <class F>
  void ForEachPart(F f) const {
    for (const PrefixNodeId id : nodes_.ids()) {
      const Node& n = nodes_[id];
      if (n.full.carried) f(id, GroupKind::kFull, n.blocks, n.full.pins);
      if (n.state.carried) f(id, GroupKind::kState, n.blocks, n.state.pins);
    }
  }
  // Recounts references between nodes; an error that names what does not agree.
  Status Audit() const;

 private:
  using Key = BlockKey;
  struct Part {
    bool carried = false;
    bool was = false;  // carried once and evicted
    int32_t pins = 0;
    PartEpochs epochs;
  };
  struct Node {
    Part& part(GroupKind kind) { return kind == GroupKind::kFull ? full : state; }
    const Part& part(GroupKind kind) const { return kind == GroupKind::kFull ? full : state; }

    PrefixNodeId parent;
    Key key;
    PageKey page;       // only where there is a tier
    int32_t depth = 0;  // blocks; 0: a root
    int32_t children = 0, full_children = 0;
    int32_t references = 0;
    bool alive = false;
    bool shared = false;         // no tenant and no salt
    bool announced = false;      // the journal has it as stored
    int32_t resumable_ends = 0;  // its own, if it has one, and children that have some behind them
    bool hit = false, branch = false, prompt_end = false, superseded = false;  // its snapshot
    Part full, state;
    PartBlocks blocks;
    BlockTokens tokens;
  };

  Node& At(PrefixNodeId id) { return nodes_[id]; }
  const Node& At(PrefixNodeId id) const { return nodes_[id]; }
  using RootName = std::tuple<std::string, std::string, int32_t>;  // tenant, salt, dp_rank
  static RootName NameOf(const PrefixSpace& space);
  static Key RootKey(const PrefixSpace& space);
  static Key ChildKey(const Key& parent, const BlockTokens& tokens);
  PrefixNodeId Find(PrefixNodeId parent, const Key& key, const BlockTokens& tokens) const;
  // Where a search for the hash begins; it goes on until it finds an empty slot.
  size_t Home(uint32_t hash) const { return hash & (slots_.size() - 1); }
  size_t After(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void FillSlot(uint32_t hash, PrefixNodeId node);
  void EmptySlot(PrefixNodeId node);
  // Whether attention can read everything up to the node.
  bool Usable(const Node& node) const { return !has_full_ || node.full.carried; }
  static bool Passing(const Node& node) {
    return node.superseded && !node.hit && !node.branch && !node.prompt_end;
  }
  void FindStored(const PrefixSpace& space, const TokenPieces& tokens, int32_t blocks,
                  PrefixKeys& keys, PrefixMatch& match) const;
  bool Evictable(const Node& node, GroupKind part) const;
  PrefixNodeId NewNode();
  void Grow();
  void Prune(PrefixNodeId node);
  // Files a part as a victim, or not, as its pins and surroundings now say.
  void File(PrefixNodeId node, GroupKind part);
  void Remove(PrefixNodeId node, GroupKind part);
  // Tells the journal, if there is one, that a part has come to a node or left it.
  void Announce(PrefixNodeId node, GroupKind part);
  void AnnounceNode(PrefixNodeId node);

  const PageDirectory* tier_;
  bool has_full_ = false, has_state_ = false;
  IdVector<PrefixNodeId, Node, std::deque<Node>> nodes_;
  std::vector<PrefixNodeId> free_nodes_;
  // Open addressing with linear probing; a power of two. That a hash is not there is mostly found
  // out without looking at a node, which is cold memory.
  struct Slot {
    uint32_t hash = 0;  // the key's lowest bits
    PrefixNodeId node;
  };
  std::vector<Slot> slots_;
  using Roots = std::map<RootName, PrefixNodeId>;
  Roots roots_;
  std::map<PrefixNodeId, Roots::iterator> root_places_;
  VictimQueue victims_;
  std::optional<PrefixJournal> journal_;
  struct Evicted {
    Key key;
    int64_t used = 0;
  };
  std::vector<Evicted> evicted_;  // by hash: nodes that carried a full part once
  int64_t nodes_alive_ = 0;
  int64_t parts_[2] = {0, 0};  // carried: full, state
};

}  // namespace braid
