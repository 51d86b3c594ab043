// Packs weights in parallel, in tasks of a few megabytes of source, in the order of the model. Each
// task releases the mapped pages that it has read, so the process never holds the model twice.
#include "model/loading/load_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/math.h"
#include "base/quantities.h"
#include "base/system/control_groups.h"
#include "base/system/topology.h"
#include "model/checkpoint/checkpoint.h"
#include "ops/weight_format.h"

namespace braid {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kTaskSourceBytes = int64_t{4} << 20;

// Panels [begin, end) of one matrix, or a whole vector.
struct PackTask {
  size_t weight = 0;
  int64_t matrix = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t source_begin = 0;  // of the weight's elements
  int64_t source_end = 0;
};

void FillVector(const BoundWeight& bound) {
  const WeightSpec& spec = bound.spec;
  float* out = const_cast<float*>(bound.weight->vector);
  const int64_t count = spec.n * spec.k, element = SizeOf(bound.dtype);
  std::vector<std::byte> stored(static_cast<size_t>(count * element));
  bound.Read(0, count, stored.data());
  const TensorEntry values{.name = spec.name, .dtype = bound.dtype, .data = stored.data()};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = spec.transpose ? i % spec.k * spec.n + i / spec.k : i;
    out[at] = ElementAt(values, i);
  }
}

// The same for a weight whose source holds its matrices transposed.
void FillTransposedPanels(const BoundWeight& bound, const ops::PackedMatrix& matrix,
                          const PackTask& task) {
  const int64_t element = SizeOf(bound.dtype), row_bytes = matrix.k * element;
  const int64_t elements = matrix.k * matrix.n;
  std::vector<std::byte> source(static_cast<size_t>(elements * element));
  bound.Read(task.matrix * elements, elements, source.data());
  std::vector<std::byte> gathered(static_cast<size_t>(ops::kPanelRows * row_bytes));
  for (int64_t p = task.begin; p < task.end; ++p) {
    const std::byte* rows[ops::kPanelRows] = {};
    for (int64_t r = 0; r < ops::kPanelRows; ++r) {
      const int64_t row = p * ops::kPanelRows + r;
      if (row >= matrix.n) continue;
      std::byte* to = gathered.data() + r * row_bytes;
      for (int64_t c = 0; c < matrix.k; ++c) {
        std::memcpy(to + c * element, source.data() + (c * matrix.n + row) * element,
                    static_cast<size_t>(element));
      }
      rows[r] = to;
    }
    ops::PackPanel(matrix, task.matrix, p, rows, bound.dtype);
  }
}

// The addresses of a panel's rows: in the file, or in `decoded` if they must be decoded first.
void PanelRows(const BoundWeight& bound, const ops::PackedMatrix& matrix, const PackTask& task,
               int64_t p, std::vector<std::byte>& decoded, const std::byte** rows) {
  const int64_t first = p * ops::kPanelRows;
  const int64_t count = std::min(ops::kPanelRows, matrix.n - first);
  const int64_t from = (task.matrix * matrix.n + first) * matrix.k;
  bool direct = true;
  for (int64_t r = 0; r < count; ++r) {
    rows[r] = bound.Direct(from + r * matrix.k, matrix.k);
    direct = direct && rows[r];
  }
  if (direct) return;
  const int64_t row_bytes = matrix.k * SizeOf(bound.dtype);
  decoded.resize(static_cast<size_t>(count * row_bytes));
  bound.Read(from, count * matrix.k, decoded.data());
  for (int64_t r = 0; r < count; ++r) rows[r] = decoded.data() + r * row_bytes;
}

void FillCodedPanel(const BoundWeight& bound, const ops::PackedMatrix& matrix, int64_t which,
                    int64_t p) {
  const int64_t first = p * ops::kPanelRows, count = std::min(ops::kPanelRows, matrix.n - first);
  ops::CodedPanel panel(matrix.format, matrix.depth());
  for (int64_t r = 0; r < count; ++r) {
    bound.CodedRow((which * matrix.n + first + r) * matrix.k, panel.codes(r), panel.scales(r));
  }
  ops::PackCodes(matrix, which, p, panel);
}

void FillPanels(const BoundWeight& bound, const PackTask& task) {
  const ops::PackedMatrix& matrix = bound.weight->matrix;
  if (bound.spec.transpose) return FillTransposedPanels(bound, matrix, task);
  const bool coded = ops::IsQuantised(matrix.format) && matrix.format == bound.stored_as;
  std::vector<std::byte> decoded;
  for (int64_t p = task.begin; p < task.end; ++p) {
    if (coded) {
      FillCodedPanel(bound, matrix, task.matrix, p);
      continue;
    }
    const std::byte* rows[ops::kPanelRows] = {};
    PanelRows(bound, matrix, task, p, decoded, rows);
    ops::PackPanel(matrix, task.matrix, p, rows, bound.dtype);
  }
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

// f(tensor, offset, bytes) for the parts of the checkpoint that hold the codes of what a task
// reads.
template <class F>
void ForEachSource(const BoundWeight& bound, const PackTask& task, F f) {
  for (int64_t at = task.source_begin; at < task.source_end;) {
    const SourceRun& run = bound.RunAt(at);
    const StoredWeight& stored = *run.stored;
    const int64_t inside = at - run.at;
    const int64_t count = std::min(run.count - inside, task.source_end - at);
    const int64_t first = run.first + inside, bytes = stored.main().bytes;
    const int64_t elements = stored.elements();
    if (stored.main().view) {
      // its rows lie in several places: rely on the kernel's own read-ahead
    } else if (stored.format && !stored.format->row_major) {
      f(stored.main(), 0, bytes);
    } else {  // in rows, so that no product overflows 63 bits
      const int64_t row_bytes = bytes / (elements / stored.k);
      f(stored.main(), first / stored.k * row_bytes, CeilDiv(count, stored.k) * row_bytes);
    }
    at += count;
  }
}

// Gives every weight its place in one buffer; returns the sum of elements.
int64_t Place(const std::vector<BoundWeight>& weights, std::byte* data) {
  int64_t elements = 0;
  for (const BoundWeight& bound : weights) {
    if (bound.spec.use == WeightUse::kVector) {
      bound.weight->vector = reinterpret_cast<const float*>(data);
    } else {
      bound.weight->matrix.data = data;
    }
    data += RoundUp(PackedBytes(bound.spec, *bound.weight), kAlignment);
    elements += bound.elements();
  }
  return elements;
}

// Places each node's part of every matrix (PackedMatrix::PartOf) on that node, whichever thread
// packs it. Boundaries are multiples of huge pages, because a huge page lies on one node.
void PlaceOnNodes(const std::vector<BoundWeight>& weights, const std::vector<int>& nodes) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const int64_t count = std::ssize(nodes);
  for (const BoundWeight& bound : weights) {
    const ops::PackedMatrix& matrix = bound.weight->matrix;
    if (count == 1 || !matrix.data) continue;
    const auto begin = reinterpret_cast<int64_t>(matrix.data);
    auto boundary = [&](int64_t n) {
      if (n == 0 || n == count) return n == 0 ? begin : begin + matrix.bytes();
      return std::min(RoundUp(begin + matrix.bytes() / count * n, kHugePage),
                      begin + matrix.bytes());
    };
    for (int64_t n = 0; n < count; ++n) {
      PreferNode(matrix.data + (boundary(n) - begin), boundary(n + 1) - boundary(n),
                 nodes[static_cast<size_t>(n)]);
    }
  }
}

// Calls progress from the pool's caller only, at most once per per cent.
class ProgressMeter {
 public:
  ProgressMeter(const LoadProgress& progress, int64_t total) : progress_(progress), total_(total) {}
  void Add(int64_t elements, int member) {
    const int64_t done = done_.fetch_add(elements, std::memory_order_relaxed) + elements;
    if (member != 0 || !progress_) return;
    const double fraction = static_cast<double>(done) / static_cast<double>(total_);
    if (fraction < reported_ + 0.01) return;
    reported_ = fraction;
    progress_(fraction);
  }

 private:
  const LoadProgress& progress_;
  int64_t total_;
  std::atomic<int64_t> done_ = 0;
  double reported_ = 0;
};

// Requests the sources of tasks ahead of time, enough to keep a disk busy.
class ReadAhead {
 public:
  ReadAhead(const std::vector<BoundWeight>& bound, std::span<const PackTask> tasks,
            const Checkpoint& checkpoint)
      : bound_(bound), tasks_(tasks), checkpoint_(checkpoint) {
    int64_t ahead = 0;
    size_t end = 0;
    for (const PackTask& task : tasks) {
      for (; end < tasks.size() && ahead < kBytes; ++end) ahead += BytesOf(tasks[end]);
      ends_.push_back(end);
      ahead -= BytesOf(task);
    }
  }

  // Called once for each task, before it reads.
  void Begin(size_t task) const {
    for (size_t i = task > 0 ? ends_[task - 1] : 0; i < ends_[task]; ++i) {
      ForEachSource(bound_[tasks_[i].weight], tasks_[i],
                    [&](const TensorEntry& tensor, int64_t offset, int64_t bytes) {
                      checkpoint_.WillNeed(tensor, offset, bytes);
                    });
    }
  }

 private:
  static constexpr int64_t kBytes = int64_t{64} << 20;

  int64_t BytesOf(const PackTask& task) const {
    return (task.source_end - task.source_begin) * SizeOf(bound_[task.weight].dtype);
  }

  const std::vector<BoundWeight>& bound_;
  std::span<const PackTask> tasks_;
  const Checkpoint& checkpoint_;
  std::vector<size_t> ends_;  // of the tasks that have been asked for when one begins
};

void PackAll(const Binding& binding, ThreadPool& pool, ProgressMeter& meter) {
  const std::vector<BoundWeight>& bound = binding.weights;
  const Checkpoint& checkpoint = *binding.checkpoint;
  std::vector<PackTask> tasks;
  for (size_t i = 0; i < bound.size(); ++i) AppendTasks(bound[i], i, tasks);
  const ReadAhead ahead(bound, tasks, checkpoint);
  pool.Run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int member) {
    const PackTask& task = tasks[static_cast<size_t>(index)];
    const BoundWeight& source = bound[task.weight];
    ahead.Begin(static_cast<size_t>(index));
    ForEachSource(source, task, [&](const TensorEntry& tensor, int64_t offset, int64_t bytes) {
      checkpoint.Populate(tensor, offset, bytes);
    });
    if (source.spec.use == WeightUse::kVector) {
      FillVector(source);
    } else {
      FillPanels(source, task);
    }
    ForEachSource(source, task, [&](const TensorEntry& tensor, int64_t offset, int64_t bytes) {
      checkpoint.DontNeed(tensor, offset, bytes);
    });
    meter.Add(task.source_end - task.source_begin, member);
  });
}

}  // namespace

Result<ModelWeights> LoadWeights(Binding binding, ThreadPool& pool, const LoadProgress& progress) {
  ModelWeights& model = *binding.model;
  for (const BoundWeight& bound : binding.weights) {
    model.bytes += RoundUp(PackedBytes(bound.spec, *bound.weight), kAlignment);
  }
  if (const int64_t available = AvailableMemory(); model.bytes > available) {
    return Error{
        ErrorCode::kExhausted,
        fmt::format("{}: the weights need {} of memory; {} are free",
                    binding.checkpoint->directory(), ByteText(model.bytes), ByteText(available))};
  }
  model.memory.emplace_back(model.bytes);
  const int64_t elements = Place(binding.weights, model.memory[0].data());
  PlaceOnNodes(binding.weights, pool.nodes());
  ProgressMeter meter(progress, elements);
  PackAll(binding, pool, meter);
  if (progress) progress(1.0);
  if (binding.tied_head) model.head = model.embedding;
  return std::move(model);
}

}  // namespace braid
