// Where this engine's pages lie: in one arena, or in pieces in those of the ranks that share the
// heads. Partners exchange whole blocks, as one rank alone has them, so engines that divide the
// heads differently understand each other. The partners' thread, after the ranks have attached.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/geometry.h"
#include "cache/page_runs.h"
#include "handoff/message.h"
#include "scheduler/mover.h"
#include "scheduler/plan.h"

namespace braid::handoff {

// A whole block. Its bytes are one piece of memory, or pieces of each rank's block.
struct Page {
  std::byte* data = nullptr;  // null: in pieces
  size_t size = 0;
  GroupId group;
  BlockId block;
};

class EnginePages {
 public:
  // Without a layout there is one rank.
  explicit EnginePages(std::optional<PageLayout> layout)
      : layout_(std::move(layout)), ranks_(layout_ ? layout_->ranks.size() : 1) {}

  size_t ranks() const { return ranks_.size(); }
  void Attach(size_t rank, const Arena& arena, const CacheGeometry& geometry) {
    CHECK(arena.access == nullptr, "the host reads and writes what partners exchange");
    ranks_[rank] = {arena.data, &geometry};
  }
  // Of the first rank: the groups' kinds are those of all.
  const CacheGeometry& geometry() const { return *ranks_[0].geometry; }

  Page At(GroupId group, BlockId block) const;
  // The blocks of a move, each by its own.
  std::map<PartKey, Page> Of(const PageMove& move) const;

  // Of pages in pieces: from them into whole.size() bytes, and back.
  std::vector<std::byte> Gather(const Page& page) const;
  void Scatter(const std::vector<std::byte>& whole, const Page& page) const;

 private:
  struct Rank {
    std::byte* arena = nullptr;
    const CacheGeometry* geometry = nullptr;
  };
  // Calls f(runs, the rank's block) for every rank.
  template <class F>
  void ForRanks(const Page& page, F f) const {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const CacheGeometry& geometry = *ranks_[r].geometry;
      f(layout_->ranks[r].runs[static_cast<size_t>(page.group.value)],
        ranks_[r].arena + BlockBytesOffset(geometry, page.group, page.block));
    }
  }

  std::optional<PageLayout> layout_;
  std::vector<Rank> ranks_;
};

}  // namespace braid::handoff
