// See the header.
#include "scheduler/planning/prefill_chunk.h"

#include <algorithm>

namespace braid {

int32_t PrefillCut(const Sequence& s, bool has_state) {
  if (!s.reuses || !has_state) return s.prefill_end;
  int32_t cut = s.prefill_end;
  const int32_t resumed = ResumedAt(s.prefill_end);
  if (s.planned < resumed && s.prefill_end - resumed >= kBlockTokens) cut = resumed;
  if (s.planned < s.branch_at) cut = std::min(cut, s.branch_at);
  for (const Sequence* follower : s.followers) {
    if (s.planned < follower->awaited) cut = std::min(cut, follower->awaited);
  }
  return cut;
}

int32_t PrefillRemainder(const Sequence& s) {
  int32_t end = s.prefill_end;
  for (const Sequence* follower : s.followers) {
    if (s.planned < follower->awaited) end = std::min(end, follower->awaited);
  }
  return end - s.planned;
}

int32_t ChunkTokens(const Sequence& s, const ChunkLimits& limits) {
  const int32_t chunk_max = limits.chunk_max > 0 ? limits.chunk_max : limits.budget;
  const int32_t remaining = PrefillCut(s, limits.has_state) - s.planned;
  const int32_t count = std::min({remaining, limits.budget, chunk_max});
  const int32_t end = s.planned + count;
  const int32_t to_boundary = end / kBlockTokens * kBlockTokens - s.planned;
  if (count < remaining) {
    if (to_boundary > 0 && limits.budget >= kBlockTokens) return to_boundary;
    return count >= limits.least || count == limits.chunk_max ? count : 0;
  }
  // From inside one block to inside another beyond the next it would hold four states, not three.
  const bool inside = s.planned % kBlockTokens != 0 && end % kBlockTokens != 0;
  if (inside && end / kBlockTokens - 1 > s.planned / kBlockTokens) return to_boundary;
  return count;
}

}  // namespace braid
