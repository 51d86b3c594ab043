// Rows are packed where they lie in the file, or decoded first; codes of the format stay codes.
#include "model/loading/pack_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "model/loading/stored_panels.h"
#include "ops/weight_format.h"
#include "tensor/finite.h"

namespace braid {
namespace {

constexpr int64_t kTaskSourceBytes = int64_t{4} << 20;

// The task's panels as a matrix of their own.
ops::PackedMatrix PartOf(const BoundWeight& bound, const PackTask& task, std::byte* out) {
  const ops::PackedMatrix& matrix = bound.weight->matrix;
  const int64_t first = task.begin * ops::kPanelRows;
  return {.format = matrix.format,
          .n = std::min(task.end * ops::kPanelRows, matrix.n) - first,
          .k = matrix.k,
          .data = out};
}

// Of the row, as stored, that holds element `first` of the weight.
Error NotFiniteAt(const BoundWeight& bound, int64_t first) {
  const SourceRun& run = bound.RunAt(first);
  return NotFinite(run.stored->main().name, (run.first + first - run.at) / run.stored->k);
}

// Panels of a weight whose source holds its matrices transposed.
Status PackTransposed(const BoundWeight& bound, const PackTask& task, const ops::PackedMatrix& to) {
  const int64_t rows_in_all = bound.spec.n;
  const int64_t element = SizeOf(bound.dtype), row_bytes = to.k * element;
  const int64_t elements = to.k * rows_in_all;
  std::vector<std::byte> source(static_cast<size_t>(elements * element));
  bound.Read(task.matrix * elements, elements, source.data());
  for (int64_t at = 0; at < elements; at += rows_in_all) {
    if (AllFinite(source.data() + at * element, rows_in_all, bound.dtype)) continue;
    return NotFiniteAt(bound, task.matrix * elements + at);
  }
  std::vector<std::byte> gathered(static_cast<size_t>(ops::kPanelRows * row_bytes));
  for (int64_t p = task.begin; p < task.end; ++p) {
    const std::byte* rows[ops::kPanelRows] = {};
    for (int64_t r = 0; r < ops::kPanelRows; ++r) {
      const int64_t row = p * ops::kPanelRows + r;
      if (row >= rows_in_all) continue;
      std::byte* at = gathered.data() + r * row_bytes;
      for (int64_t c = 0; c < to.k; ++c) {
        std::memcpy(at + c * element, source.data() + (c * rows_in_all + row) * element,
                    static_cast<size_t>(element));
      }
      rows[r] = at;
    }
    ops::PackPanel(to, 0, p - task.begin, rows, bound.dtype);
  }
  return {};
}

// Rows of the weight that one panel holds.
struct PanelRows {
  int64_t first = 0;  // of all matrices
  int64_t count = 0;
};
PanelRows RowsOf(const BoundWeight& bound, int64_t matrix, int64_t p) {
  const int64_t first = p * ops::kPanelRows;
  return {matrix * bound.spec.n + first, std::min(ops::kPanelRows, bound.spec.n - first)};
}

// The addresses of a panel's rows: in the file, or in `decoded` if they must be decoded first.
void FindRows(const BoundWeight& bound, PanelRows panel, std::vector<std::byte>& decoded,
              const std::byte** rows) {
  const int64_t k = bound.spec.k, from = panel.first * k;
  bool direct = true;
  for (int64_t r = 0; r < panel.count; ++r) {
    rows[r] = bound.Direct(from + r * k, k);
    direct = direct && rows[r];
  }
  if (direct) return;
  const int64_t row_bytes = k * SizeOf(bound.dtype);
  decoded.resize(static_cast<size_t>(panel.count * row_bytes));
  bound.Read(from, panel.count * k, decoded.data());
  for (int64_t r = 0; r < panel.count; ++r) rows[r] = decoded.data() + r * row_bytes;
}

// What a panel is packed from while it is in the caches anyway. Rows of the embedding are left
// alone: those of tokens that nobody uses may hold anything, and one that is used ends its request.
Status CheckFinite(const BoundWeight& bound, PanelRows panel, const std::byte* const* rows) {
  if (bound.spec.part == "embedding") return {};
  for (int64_t r = 0; r < panel.count; ++r) {
    if (AllFinite(rows[r], bound.spec.k, bound.dtype)) continue;
    return NotFiniteAt(bound, (panel.first + r) * bound.spec.k);
  }
  return {};
}

// The task's panels, packed. Other formats than fp16 have the range of fp32, or scales.
Status CheckInRange(const BoundWeight& bound, const PackTask& task, const ops::PackedMatrix& to) {
  if (to.format != ops::WeightFormat::kF16 || bound.dtype == DType::kF16) return {};
  if (AllFinite(to.data, to.bytes() / SizeOf(DType::kF16), DType::kF16)) return {};
  return BeyondF16(bound.RunAt(task.source_begin).stored->main().name);
}

Status PackCoded(const BoundWeight& bound, PanelRows rows, const ops::PackedMatrix& to, int64_t p) {
  ops::CodedPanel panel(to.format, to.depth());
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t first = (rows.first + r) * to.k;
    bound.CodedRow(first, panel.codes(r), panel.scales(r));
    if (ops::NumbersAreFinite(to.format, panel.scales(r), to.k)) continue;
    const SourceRun& run = bound.RunAt(first);
    return Error{ErrorCode::kInvalid,
                 fmt::format("\"{}\" has a scale that is NaN or infinite in row {}: the file is "
                             "damaged, or was quantised from such weights",
                             run.stored->main().name, (run.first + first - run.at) / to.k)};
  }
  ops::PackCodes(to, 0, p, panel);
  return {};
}

// Of the task's matrix, behind its panels.
void PackOrder(const BoundWeight& bound, const PackTask& task, std::byte* out) {
  const ops::PackedMatrix& matrix = bound.weight->matrix;
  const std::span<const uint16_t> order = bound.OrderAt(task.matrix * matrix.n * matrix.k);
  std::memset(out, 0, static_cast<size_t>(matrix.order_bytes()));
  for (int64_t c = 0; c < matrix.k; ++c) {
    const auto input = order.empty() ? static_cast<uint16_t>(c) : order[static_cast<size_t>(c)];
    std::memcpy(out + 2 * c, &input, sizeof input);
  }
}

}  // namespace

int64_t TaskBytes(const BoundWeight& bound, const PackTask& task) {
  const ops::PackedMatrix& matrix = bound.weight->matrix;
  return (task.end - task.begin) * matrix.panel_bytes() +
         (task.end == matrix.panels() ? matrix.order_bytes() : 0);
}

std::vector<float> ReadVector(const BoundWeight& bound) {
  const int64_t count = bound.spec.n * bound.spec.k;
  std::vector<std::byte> stored(static_cast<size_t>(count * SizeOf(bound.dtype)));
  bound.Read(0, count, stored.data());
  const TensorEntry values{.name = bound.spec.name, .dtype = bound.dtype, .data = stored.data()};
  std::vector<float> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = ElementAt(values, i);
  return out;
}

Status PackPanels(const BoundWeight& bound, const PackTask& task, std::byte* out) {
  const ops::PackedMatrix to = PartOf(bound, task, out);
  if (bound.spec.transpose) {
    RETURN_IF_ERROR(PackTransposed(bound, task, to));
    return CheckInRange(bound, task, to);
  }
  const bool coded = ops::IsQuantised(to.format) && to.format == bound.stored_as;
  const bool stored = RunsAsStoredPanels(bound);
  std::vector<std::byte> decoded;
  for (int64_t p = task.begin; p < task.end; ++p) {
    const PanelRows panel = RowsOf(bound, task.matrix, p);
    const int64_t at = p - task.begin;
    if (const std::byte* whole = stored ? StoredPanel(bound, task.matrix, p) : nullptr) {
      std::memcpy(out + at * to.panel_bytes(), whole, static_cast<size_t>(to.panel_bytes()));
      continue;
    }
    if (coded) {
      RETURN_IF_ERROR(PackCoded(bound, panel, to, at));
      continue;
    }
    const std::byte* rows[ops::kPanelRows] = {};
    FindRows(bound, panel, decoded, rows);
    RETURN_IF_ERROR(CheckFinite(bound, panel, rows));
    ops::PackPanel(to, 0, at, rows, bound.dtype);
  }
  const int64_t panels = (task.end - task.begin) * to.panel_bytes();
  if (TaskBytes(bound, task) > panels) PackOrder(bound, task, out + panels);
  return CheckInRange(bound, task, to);
}

void AppendTasks(const BoundWeight& bound, size_t index, std::vector<PackTask>& tasks) {
  const WeightSpec& spec = bound.spec;
  const ops::PackedMatrix& matrix = bound.weight->matrix;
  const int64_t row_bytes = spec.k * SizeOf(bound.dtype);
  if (spec.use == WeightUse::kVector) {
    tasks.push_back({.weight = index, .source_end = spec.n * spec.k});
    return;
  }
  const int64_t step = std::max<int64_t>(1, kTaskSourceBytes / (ops::kPanelRows * row_bytes));
  for (int64_t m = 0; m < spec.count; ++m) {
    if (spec.transpose) {  // every panel reads the whole matrix: one task
      const int64_t elements = spec.n * spec.k;
      tasks.push_back({index, m, 0, matrix.panels(), m * elements, (m + 1) * elements});
      continue;
    }
    for (int64_t p = 0; p < matrix.panels(); p += step) {
      const int64_t end = std::min(p + step, matrix.panels());
      const int64_t first_row = m * spec.n + p * ops::kPanelRows;
      const int64_t last_row = m * spec.n + std::min(spec.n, end * ops::kPanelRows);
      tasks.push_back({index, m, p, end, first_row * spec.k, last_row * spec.k});
    }
  }
}

}  // namespace braid
