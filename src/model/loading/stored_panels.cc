// Rows of the model's weight are followed into the file's; a panel is taken if all 16 come with it.
#include "model/loading/stored_panels.h"

#include <algorithm>

#include "model/checkpoint/formats/storage_format.h"

namespace braid {

std::string PanelName(const WeightSpec& spec) {
  return spec.name.substr(spec.name.starts_with('@') ? 1 : 0);
}

void SourceFromPanels(WeightSpec& spec) {
  const std::string name = PanelName(spec);
  if (spec.use == WeightUse::kVector) {
    spec.sources = {{{name, {spec.n, spec.k}, {}}}};
    return;
  }
  spec.sources = {{{name, {spec.count, spec.n, spec.k}, {}}}};
  spec.transpose = false;
}

bool RunsAsStoredPanels(const BoundWeight& bound) {
  if (bound.spec.use == WeightUse::kVector || bound.runs.empty()) return false;
  return std::ranges::all_of(bound.runs, [&](const SourceRun& run) {
    const auto panels = PanelsOf(*run.stored);
    const ops::PackedMatrix& matrix = bound.weight->matrix;
    return panels && panels->format == matrix.format && panels->ordered == matrix.ordered &&
           panels->k == bound.spec.k;
  });
}

const std::byte* StoredPanel(const BoundWeight& bound, int64_t matrix, int64_t p) {
  const WeightSpec& spec = bound.spec;
  const int64_t first = p * ops::kPanelRows, count = std::min(ops::kPanelRows, spec.n - first);
  const int64_t element = (matrix * spec.n + first) * spec.k;
  const SourceRun& run = bound.RunAt(element);
  const int64_t inside = element - run.at;
  const ops::PackedMatrix stored = *PanelsOf(*run.stored);
  const int64_t from = (run.first + inside) / spec.k;  // row of the file
  const int64_t lane = from % stored.n;
  const bool begins = lane % ops::kPanelRows == 0 && inside + count * spec.k <= run.count;
  const bool ends = count == std::min(ops::kPanelRows, stored.n - lane);
  return begins && ends ? stored.panel(from / stored.n, lane / ops::kPanelRows) : nullptr;
}

const std::byte* MappedPanels(const BoundWeight& bound) {
  if (!RunsAsStoredPanels(bound)) return nullptr;
  const ops::PackedMatrix& matrix = bound.weight->matrix;
  // An order lies behind whole matrices only.
  if (matrix.ordered && bound.runs.front().stored->rows != matrix.n) return nullptr;
  const std::byte* const begin = StoredPanel(bound, 0, 0);
  const std::byte* next = begin;
  for (int64_t m = 0; m < matrix.count; ++m) {
    for (int64_t p = 0; p < matrix.panels(); ++p, next += matrix.panel_bytes()) {
      if (begin == nullptr || StoredPanel(bound, m, p) != next) return nullptr;
    }
    next += matrix.order_bytes();
  }
  return begin;
}

}  // namespace braid
