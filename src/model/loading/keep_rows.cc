// A part of a weight is the same weight with fewer runs.
#include "model/loading/keep_rows.h"

#include <algorithm>

#include "base/check.h"

namespace braid {
namespace {

// The runs of the elements of `rows`, each row `width` elements long.
std::vector<SourceRun> RunsOf(const BoundWeight& bound, const std::vector<RowRange>& rows,
                              int64_t width) {
  std::vector<SourceRun> runs;
  int64_t at = 0;
  for (const RowRange& range : rows) {
    const int64_t end = (range.begin + range.count) * width;
    for (int64_t element = range.begin * width; element < end;) {
      const SourceRun& whole = bound.RunAt(element);
      const int64_t inside = element - whole.at;
      const int64_t count = std::min(whole.count - inside, end - element);
      runs.push_back({whole.stored, whole.first + inside, at, count});
      at += count;
      element += count;
    }
  }
  return runs;
}

// Gives the spec its number of matrices and of rows in each.
void Narrow(const std::vector<RowRange>& rows, WeightSpec& spec) {
  const auto whole = [&](const RowRange& range) {
    return range.begin % spec.n == 0 && range.count % spec.n == 0;
  };
  if (std::ranges::all_of(rows, whole)) {
    int64_t matrices = 0;
    for (const RowRange& range : rows) matrices += range.count / spec.n;
    CHECK(matrices > 0, "{}", spec.name);
    spec.count = matrices;
    spec.units.clear();
    return;
  }
  std::vector<int64_t> kept(static_cast<size_t>(spec.count));  // rows of each matrix
  int64_t last = 0;
  for (const RowRange& range : rows) {
    CHECK(range.begin >= last && range.begin + range.count <= spec.count * spec.n, "{}", spec.name);
    last = range.begin + range.count;
    for (int64_t row = range.begin; row < last;) {
      const int64_t matrix = row / spec.n, end = std::min(last, (matrix + 1) * spec.n);
      kept[static_cast<size_t>(matrix)] += end - row;
      row = end;
    }
  }
  std::erase(kept, 0);
  CHECK(!kept.empty() && std::ranges::count(kept, kept[0]) == std::ssize(kept),
        "the rows of {} are not equally many of every matrix", spec.name);
  CHECK(!spec.transpose || spec.use == WeightUse::kVector || kept[0] == spec.n,
        "{} is stored transposed: its matrices cannot be cut", spec.name);
  spec.count = std::ssize(kept);
  spec.n = kept[0];
  spec.units.clear();
}

}  // namespace

void KeepRows(const HeldRows& held, Binding& binding) {
  for (size_t i = 0; i < binding.weights.size(); ++i) {
    BoundWeight& bound = binding.weights[i];
    const std::vector<RowRange> rows = held(bound.spec);
    bound.runs = RunsOf(bound, rows, bound.spec.k);
    Narrow(rows, bound.spec);
    if (bound.spec.use == WeightUse::kMatrix) {
      bound.weight->matrix.count = bound.spec.count;
      bound.weight->matrix.n = bound.spec.n;
    }
    binding.report.weights[i] = StorageOf(bound);
  }
}

}  // namespace braid
