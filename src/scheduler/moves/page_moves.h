// Which pages are on their way. A request's move is its own business; this knows whose it is. What
// requests leave behind is written to the tier below the arena as soon as it rests, and mostly
// before an eviction takes it: of each path, from the root on, the keys and values up to its last
// state that is kept, and such states, each once. A path is gone through once: what could not be
// written then, or has made way since, is tried again when something rests behind it. Paths wait
// without pins, so evictions lose some where the tier is slower than the model: they are counted.
// Engine thread.
//
// Invariant: the blocks of a move out are pinned, and so is the path before them, until its end.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cache/page_directory.h"
#include "scheduler/dp_rank.h"
#include "scheduler/event.h"
#include "scheduler/plan.h"
#include "scheduler/scheduler.h"

namespace braid {

class PageMoves {
 public:
  // All three outlive it.
  PageMoves(const SchedulerConfig& config, DpRanks& ranks, PageDirectory& tier);

  // A move of a sequence, of these parts as far as a tier knows them.
  MoveId Begin(Sequence& s, std::vector<KnownPart> parts);
  // A path of the prefix cache that nobody may be using any more.
  void Rest(DpRankId rank, PrefixNodeId leaf);
  // Moves of what rests, as many as may be under way: few where a request waits for blocks.
  void PlanWrites(DpRankId rank, bool blocks_awaited, std::vector<PageMove>& moves);
  // A move is over: the sequence whose it was, null for what rests. None: no such move.
  std::optional<Sequence*> End(const PagesMoved& event);
  // Nothing more of what rests is written.
  void Forget();

  int32_t under_way() const { return static_cast<int32_t>(under_way_.size()); }
  bool idle() const;

  const TierCounts& counts() const { return counts_; }

  // Calls f(node, kind) for every pin of the rank's cache that a move holds.
  template <class F>
  void ForEachPin(DpRankId rank, F f) const {
    for (const auto& [id, move] : under_way_) {
      if (move.rank != rank) continue;
      for (const auto& [node, kind] : move.pins) f(node, kind);
    }
  }

 private:
  struct Moving {
    Sequence* sequence = nullptr;
    DpRankId rank;
    Direction direction = Direction::kIn;
    std::vector<KnownPart> parts;
    std::vector<std::pair<PrefixNodeId, GroupKind>> pins;
  };
  struct Path {
    PrefixNodeId leaf;  // referred to
    size_t next = 0;    // node from the root on, of which nothing was tried
    size_t end = 0;     // of what was to be written when it came to rest
  };
  struct Resting {
    std::deque<Path> paths;
    int32_t writes = 0;  // under way
  };

  void FindPath(const PrefixIndex& index, PrefixNodeId leaf);
  void DropPath(DpRankId rank);
  bool PlanWrite(DpRankId rank, Path& resting, std::vector<PageMove>& moves);
  bool Known(const KnownPart& part) const;
  void EndWrite(const Moving& move);

  const SchedulerConfig& config_;
  DpRanks& ranks_;
  PageDirectory& tier_;
  const bool has_full_, has_state_;
  const int32_t writes_max_;  // of a rank, under way
  std::map<MoveId, Moving> under_way_;
  IdVector<DpRankId, Resting> resting_;
  std::set<KnownPart> writing_;
  std::vector<PrefixNodeId> path_;  // scratch
  int64_t begun_ = 0;
  TierCounts counts_;
};

}  // namespace braid
