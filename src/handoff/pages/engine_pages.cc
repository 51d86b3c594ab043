// See the header.
#include "handoff/pages/engine_pages.h"

#include <algorithm>

namespace braid::handoff {

int64_t EnginePages::block_bytes_max() const {
  if (layout_) return std::ranges::max(layout_->block_bytes);
  return std::ranges::max(geometry().groups, {}, &GroupGeometry::block_bytes).block_bytes;
}

Page EnginePages::At(GroupId group, BlockId block) const {
  const auto g = static_cast<size_t>(group.value);
  Page page{.group = group, .block = block};
  if (layout_) {
    page.size = static_cast<size_t>(layout_->block_bytes[g]);
    return page;
  }
  page.size = static_cast<size_t>(geometry().groups[g].block_bytes);
  if (!apart()) page.data = AddressOf(ranks_[0], page);
  return page;
}

std::map<PartKey, Page> EnginePages::Of(const PageMove& move) const {
  std::map<PartKey, Page> pages;
  for (const PagePart& part : move.parts) {
    for (size_t g = 0; g < geometry().groups.size(); ++g) {
      if (geometry().groups[g].kind != part.kind) continue;
      const GroupId group(static_cast<int32_t>(g));
      const BlockId block = part.blocks.by_group[g];
      CHECK(block.valid(), "part {} of a move has no block in group {}", part.index, g);
      pages[{group, part.index}] = At(group, block);
    }
  }
  return pages;
}

std::vector<ArenaAccess::Piece> EnginePages::PiecesOf(std::span<const Copy> copies) const {
  std::vector<ArenaAccess::Piece> pieces;
  for (const Copy& copy : copies) {
    pieces.push_back({AddressOf(ranks_[0], copy.page), {copy.whole, copy.page.size}});
  }
  return pieces;
}

// What lies between the runs is padding.
Status EnginePages::Fetch(std::span<const Copy> copies) const {
  if (!layout_) return ranks_[0].arena.access->Fetch(PiecesOf(copies));
  for (const Copy& copy : copies) {
    std::fill_n(copy.whole, copy.page.size, std::byte{0});
    ForRanks(copy.page,
             [&](const auto& runs, const std::byte* own) { Gather(runs, own, copy.whole); });
  }
  return {};
}

Status EnginePages::Store(std::span<const Copy> copies) const {
  if (!layout_) return ranks_[0].arena.access->Store(PiecesOf(copies));
  for (const Copy& copy : copies) {
    ForRanks(copy.page, [&](const auto& runs, std::byte* own) { Scatter(runs, copy.whole, own); });
  }
  return {};
}

}  // namespace braid::handoff
