// Arithmetic on geometries: checks, offsets, and how much fits. Pure; any thread.
#include "cache/geometry.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "cache/page_part.h"

namespace braid {
namespace {

constexpr int32_t kBlocksPerParentMax = 65536;

Error Bad(std::string message) { return {ErrorCode::kInvalid, std::move(message), "cache"}; }

Status CheckGroup(const CacheGeometry& geometry, const GroupGeometry& group) {
  if (group.block_bytes <= 0) {
    return Bad(fmt::format("cache group \"{}\": block_bytes is {}, must be positive", group.name,
                           group.block_bytes));
  }
  if (group.blocks_per_page < 1 || group.blocks_per_page > kBlocksPerParentMax) {
    return Bad(fmt::format("cache group \"{}\": blocks_per_page is {}, must be 1 to {}", group.name,
                           group.blocks_per_page, kBlocksPerParentMax));
  }
  const auto bytes = CheckedMul(group.block_bytes, group.blocks_per_page);
  if (!bytes || *bytes > geometry.page_bytes) {
    return Bad(
        fmt::format("cache group \"{}\": {} blocks of {} bytes do not fit a page of {} bytes",
                    group.name, group.blocks_per_page, group.block_bytes, geometry.page_bytes));
  }
  const auto ids = CheckedMul(geometry.pages, group.blocks_per_page);
  if (!ids || *ids > std::numeric_limits<int32_t>::max()) {
    return Bad(fmt::format("cache group \"{}\": {} pages of {} blocks exceed 2^31 block ids",
                           group.name, geometry.pages, group.blocks_per_page));
  }
  return {};
}

}  // namespace

Status CheckGeometry(const CacheGeometry& geometry) {
  if (geometry.groups.empty() || geometry.groups.size() > kCacheGroupsMax) {
    return Bad(fmt::format("the cache has {} groups, must have 1 to {}", geometry.groups.size(),
                           kCacheGroupsMax));
  }
  for (const GroupGeometry& group : geometry.groups) RETURN_IF_ERROR(CheckGroup(geometry, group));
  if (!CheckedMul(geometry.page_bytes, geometry.pages)) {
    return Bad(
        fmt::format("{} pages of {} bytes exceed 2^63 bytes", geometry.pages, geometry.page_bytes));
  }
  const int64_t least = PagesFor(geometry, BlocksOfSequence(geometry, 1));
  if (geometry.pages - 1 < least) {
    return Bad(
        fmt::format("the arena has {} pages of {} bytes besides the sink, and one sequence of "
                    "up to {} tokens needs {}",
                    std::max(geometry.pages - 1, 0), geometry.page_bytes, kBlockTokens, least));
  }
  return {};
}

bool HasState(const CacheGeometry& geometry) {
  return std::any_of(geometry.groups.begin(), geometry.groups.end(),
                     [](const GroupGeometry& g) { return g.kind == GroupKind::kState; });
}

int64_t BlockBytesOffset(const CacheGeometry& geometry, GroupId group, BlockId block) {
  CHECK(group.valid() && static_cast<size_t>(group.value) < geometry.groups.size());
  const GroupGeometry& g = geometry.groups[static_cast<size_t>(group.value)];
  const int64_t page = block.value / g.blocks_per_page;
  CHECK(block.valid() && page < geometry.pages, "block {} of group \"{}\"", block.value, g.name);
  return page * geometry.page_bytes + block.value % g.blocks_per_page * g.block_bytes;
}

int64_t PartBytes(const CacheGeometry& geometry, GroupKind kind) {
  int64_t bytes = 0;
  for (const GroupGeometry& g : geometry.groups) bytes += g.kind == kind ? g.block_bytes : 0;
  return bytes;
}

BlockCounts BlocksOfSequence(const CacheGeometry& geometry, int64_t tokens) {
  BlockCounts counts;
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    const bool state = geometry.groups[g].kind == GroupKind::kState;
    counts.by_group[g] =
        state ? StateBlocksPrefill(tokens) : static_cast<int32_t>(CeilDiv(tokens, kBlockTokens));
  }
  return counts;
}

int64_t PagesFor(const CacheGeometry& geometry, const BlockCounts& blocks) {
  int64_t pages = 0;
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    pages += CeilDiv(blocks.by_group[g], geometry.groups[g].blocks_per_page);
  }
  return pages;
}

int64_t ResumableConversations(const CacheGeometry& geometry, int64_t tokens) {
  const int64_t blocks = tokens / kBlockTokens;
  const int64_t room = geometry.pages - 1 - PagesFor(geometry, BlocksOfSequence(geometry, tokens));
  if (blocks == 0) return 0;
  const auto pages = [&](int64_t count) {
    int64_t need = 0;
    for (const GroupGeometry& group : geometry.groups) {
      const bool state = group.kind == GroupKind::kState;
      const int64_t each = state ? std::min<int64_t>(blocks, 2) : blocks;
      need += CeilDiv(count * each, group.blocks_per_page);
    }
    return need;
  };
  int64_t fits = 0;
  int64_t too_many = int64_t{geometry.pages} * kBlocksPerParentMax;
  while (too_many - fits > 1) {
    const int64_t count = fits + (too_many - fits) / 2;
    (pages(count) <= room ? fits : too_many) = count;
  }
  return fits;
}

int64_t SequenceTokensMax(const CacheGeometry& geometry) {
  // Monotone in the length, in whole blocks: bisect between a length that fits and one that does
  // not.
  int64_t fits = 0;
  int64_t too_long = std::numeric_limits<int32_t>::max() / kBlockTokens;
  while (too_long - fits > 1) {
    const int64_t blocks = fits + (too_long - fits) / 2;
    const int64_t need = PagesFor(geometry, BlocksOfSequence(geometry, blocks * kBlockTokens));
    (need <= geometry.pages - 1 ? fits : too_long) = blocks;
  }
  return fits * kBlockTokens;
}

}  // namespace braid
