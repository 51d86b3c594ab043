// The same entries that the scheduler's Cover reserves; see cache/geometry.h.
#include "handoff/parts.h"

#include "base/check.h"

namespace braid::handoff {
namespace {

GroupKind KindOf(const CacheGeometry& geometry, GroupId group) {
  return geometry.groups[static_cast<size_t>(group.value)].kind;
}

}  // namespace

std::vector<PartKey> PartsOf(const CacheGeometry& geometry, int32_t begin, int32_t end) {
  CHECK(begin >= 0 && begin < end && begin % kBlockTokens == 0, "parts of tokens {} to {}", begin,
        end);
  std::vector<PartKey> parts;
  const int32_t first = begin / kBlockTokens, whole = end / kBlockTokens;
  const int32_t blocks = static_cast<int32_t>(CeilDiv(end, kBlockTokens));
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    const GroupId group(static_cast<int32_t>(g));
    const bool state = KindOf(geometry, group) == GroupKind::kState;
    for (int32_t i = state ? std::max(first, whole - 1) : first; i < blocks; ++i) {
      parts.push_back({group, i});
    }
  }
  return parts;
}

bool FinalAt(const CacheGeometry& geometry, PartKey part, int32_t computed) {
  return KindOf(geometry, part.group) == GroupKind::kFull && part.index < computed / kBlockTokens;
}

}  // namespace braid::handoff
