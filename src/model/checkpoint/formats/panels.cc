// Weights that a checkpoint holds as kernels read them: a format for every row of the table of
// memory formats, one tensor of bytes [matrices, panels, bytes of a panel], named by the format
// ("layers.0.mlp.down" + ".int4"). A tensor [matrices, bytes of a matrix] has an order of columns
// behind the panels of each (ops/packed.h).
#include <fmt/format.h>

#include <deque>

#include "base/check.h"
#include "model/checkpoint/formats/storage_format.h"
#include "ops/weight_format.h"

namespace braid {
namespace {

constexpr DType kBytes[] = {DType::kU8};
constexpr int64_t kAlignment = 64;

bool IsOrder(std::span<const uint16_t> order) {
  std::vector<bool> seen(order.size());
  for (const uint16_t input : order) {
    if (input >= order.size() || seen[input]) return false;
    seen[input] = true;
  }
  return true;
}

std::string Problem(const StoredWeight& w) {
  const ops::PackedMatrix matrix = *PanelsOf(w);
  if (std::string problem = PartProblem(w.main(), kBytes, PanelShape(matrix)); !problem.empty()) {
    return problem;
  }
  if (reinterpret_cast<uintptr_t>(w.main().data) % kAlignment != 0) {
    return fmt::format(
        "\"{}\" does not begin at a multiple of {} bytes: another program has rewritten the file",
        w.main().name, kAlignment);
  }
  for (int64_t m = 0; matrix.ordered && m < matrix.count; ++m) {
    if (IsOrder({matrix.order(m), static_cast<size_t>(w.k)})) continue;
    return fmt::format("\"{}\" has an order of columns of matrix {} that does not name each of {} "
                       "once",
                       w.main().name, m, w.k);
  }
  return {};
}

DType HoldsAll(const StoredWeight& w) {
  return ops::RowOf(PanelsOf(w)->format).plain.value_or(DType::kF32);
}

void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  const ops::PackedMatrix matrix = *PanelsOf(w);
  for (int64_t r = row; r < row + count; ++r, out += w.k) {
    matrix.ReadRow(r / w.rows, r % w.rows, out);
  }
}

bool Fits(const StoredWeight&) { return true; }
void KeptRow(const StoredWeight& w, int64_t, std::byte*, std::byte*) {
  CHECK(false, "{}: panels are taken whole", w.name);
}

// One for each row of the table, in its order.
struct Formats {
  Formats() {
    for (const ops::WeightFormatRow& row : ops::WeightFormats()) {
      names.push_back(fmt::format("{} panels", row.name));
      suffixes.push_back(fmt::format(".{}", row.name));
      parts.push_back({suffixes.back()});
      kept.push_back({row.format, Fits, KeptRow});
      all.push_back({.name = names.back(),
                     .parts = {&parts.back(), 1},
                     .types = kBytes,
                     .problem = Problem,
                     .holds_all = HoldsAll,
                     .decode = Decode,
                     .kept = row.quantised() ? &kept.back() : nullptr,
                     .row_major = false});
    }
  }
  std::deque<std::string> names, suffixes;
  std::deque<FormatPart> parts;
  std::deque<KeptCodes> kept;
  std::deque<StorageFormat> all;
};

const Formats& AllFormats() {
  static const Formats kFormats;
  return kFormats;
}

}  // namespace

const StorageFormat& PanelFormat(ops::WeightFormat format) {
  return AllFormats().all[static_cast<size_t>(format)];
}

std::optional<ops::PackedMatrix> PanelsOf(const StoredWeight& stored) {
  if (stored.format == nullptr || stored.format->decode != Decode) return {};
  for (const ops::WeightFormatRow& row : ops::WeightFormats()) {
    if (stored.format != &PanelFormat(row.format)) continue;
    return ops::PackedMatrix{.format = row.format,
                             .count = stored.matrices,
                             .n = stored.rows,
                             .k = stored.k,
                             .data = const_cast<std::byte*>(stored.main().data),
                             .ordered = row.integers && stored.main().shape.size() == 2};
  }
  return {};
}

std::vector<int64_t> PanelShape(const ops::PackedMatrix& matrix) {
  if (matrix.ordered) return {matrix.count, matrix.matrix_bytes()};
  return {matrix.count, matrix.panels(), matrix.panel_bytes()};
}

std::span<const uint16_t> OrderOf(const StoredWeight& stored, int64_t row) {
  const std::optional<ops::PackedMatrix> panels = PanelsOf(stored);
  if (!panels) return stored.order;
  if (!panels->ordered) return {};
  return {panels->order(row / stored.rows), static_cast<size_t>(stored.k)};
}

}  // namespace braid
