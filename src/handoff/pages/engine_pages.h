// Where this engine's pages lie: in one arena of the host, in one of a device, or in pieces in
// those of the ranks that share the heads. Partners exchange whole blocks, as one rank alone has
// them, so engines that divide the heads differently understand each other. Any thread, while no
// rank attaches.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "cache/geometry.h"
#include "cache/page_runs.h"
#include "handoff/message.h"
#include "scheduler/mover.h"
#include "scheduler/plan.h"

namespace braid::handoff {

// A whole block.
struct Page {
  std::byte* data = nullptr;  // null: the transport reads and writes copies of it
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
    CHECK(arena.access == nullptr || !layout_, "a device has whole blocks");
    ranks_[rank] = {arena, &geometry};
  }
  // Whether the transport cannot read and write the blocks where they are: they lie in pieces, or
  // on a device.
  bool apart() const { return layout_ || ranks_[0].arena.access != nullptr; }
  // Of the first rank: the groups' kinds are those of all.
  const CacheGeometry& geometry() const { return *ranks_[0].geometry; }
  int64_t block_bytes_max() const;

  Page At(GroupId group, BlockId block) const;
  // The blocks of a move, each by its own.
  std::map<PartKey, Page> Of(const PageMove& move) const;

  // A block that lies apart, and as many bytes of the host.
  struct Copy {
    Page page;
    std::byte* whole;
  };
  // From the blocks, and to them. After an error it is not known which are copied.
  Status Fetch(std::span<const Copy> copies) const;
  Status Store(std::span<const Copy> copies) const;

 private:
  struct Rank {
    Arena arena;
    const CacheGeometry* geometry = nullptr;
  };
  std::byte* AddressOf(const Rank& rank, const Page& page) const {
    return rank.arena.data + BlockBytesOffset(*rank.geometry, page.group, page.block);
  }
  // Calls f(runs, the rank's block) for every rank.
  template <class F>
  void ForRanks(const Page& page, F f) const {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      f(layout_->ranks[r].runs[static_cast<size_t>(page.group.value)], AddressOf(ranks_[r], page));
    }
  }
  std::vector<ArenaAccess::Piece> PiecesOf(std::span<const Copy> copies) const;

  std::optional<PageLayout> layout_;
  std::vector<Rank> ranks_;
};

}  // namespace braid::handoff
