// See the header.
#include "cache/prefix_changes.h"

#include <algorithm>

namespace braid {

PrefixChanges PrefixJournal::Take() {
  PrefixChanges changes{.cleared = std::exchange(cleared_, false), .removed = {}, .stored = {}};
  std::vector<std::pair<int64_t, uint64_t>> removed;
  for (const auto& [hash, order] : removed_) removed.emplace_back(order, hash);
  std::sort(removed.begin(), removed.end());
  for (const auto& [order, hash] : removed) changes.removed.push_back(hash);
  for (size_t i = 0; i < stored_.size(); ++i) {
    const auto at = at_.find(stored_[i].hash);
    if (at != at_.end() && at->second == i) changes.stored.push_back(stored_[i]);
  }
  removed_.clear();
  stored_.clear();
  at_.clear();
  return changes;
}

}  // namespace braid
