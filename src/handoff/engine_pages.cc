// See the header.
#include "handoff/engine_pages.h"

namespace braid::handoff {

Page EnginePages::At(GroupId group, BlockId block) const {
  const auto g = static_cast<size_t>(group.value);
  Page page{.group = group, .block = block};
  if (layout_) {
    page.size = static_cast<size_t>(layout_->block_bytes[g]);
    return page;
  }
  const CacheGeometry& geometry = *ranks_[0].geometry;
  page.data = ranks_[0].arena + BlockBytesOffset(geometry, group, block);
  page.size = static_cast<size_t>(geometry.groups[g].block_bytes);
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

// What lies between the runs is padding.
std::vector<std::byte> EnginePages::Gather(const Page& page) const {
  std::vector<std::byte> whole(page.size);
  ForRanks(page,
           [&](const auto& runs, const std::byte* own) { braid::Gather(runs, own, whole.data()); });
  return whole;
}

void EnginePages::Scatter(const std::vector<std::byte>& whole, const Page& page) const {
  CHECK(whole.size() == page.size, "{} bytes of a block of {}", whole.size(), page.size);
  ForRanks(page,
           [&](const auto& runs, std::byte* own) { braid::Scatter(runs, whole.data(), own); });
}

}  // namespace braid::handoff
