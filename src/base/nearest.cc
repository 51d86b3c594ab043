// Edit distance by optimal string alignment, row by row, until a row exceeds the limit.
#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace braid {
namespace {

// Bounds on the time for one name: a file of another's making may have many of any length.
constexpr size_t kNameBytesMax = 160;
constexpr size_t kComparedMax = 512;

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b, size_t limit) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  size_t best_above = 0;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    size_t best = row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
      best = std::min(best, row[j]);
    }
    // A swap reaches back two rows.
    if (std::min(best, best_above + 1) >= limit) return limit;
    best_above = best;
  }
  return std::min(row[b.size()], limit);
}

const std::string* NearestName(std::string_view name, std::span<const std::string> known,
                               size_t edits_max) {
  if (name.size() > kNameBytesMax) return nullptr;
  size_t limit = edits_max + 1, compared = 0;
  const std::string* nearest = nullptr;
  for (const std::string& candidate : known) {
    const size_t apart =
        std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size());
    size_t distance = limit;
    if (name.size() >= 3 && candidate.starts_with(name)) {
      distance = std::min<size_t>(apart, 1);
    } else if (apart < limit && compared++ < kComparedMax) {
      distance = EditDistance(name, candidate, limit);
    }
    if (distance >= limit) continue;
    limit = distance;
    nearest = &candidate;
  }
  return nearest;
}

}  // namespace braid
