// Packs weights in parallel, in tasks of a few megabytes of source, in the order of the model. Each
// task releases the mapped pages that it has read, so the process never holds the model twice.
// Panels that the file has as they are read stay there; their tasks bring them into memory.
#include "model/loading/load_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "base/math.h"
#include "base/quantities.h"
#include "base/system/control_groups.h"
#include "base/system/topology.h"
#include "model/checkpoint/checkpoint.h"
#include "model/loading/pack_weights.h"
#include "model/loading/stored_panels.h"
#include "ops/weight_format.h"

namespace braid {
namespace {

constexpr int64_t kAlignment = 64;

// Whether the weight is used where the file is mapped.
bool IsMapped(const BoundWeight& bound) {
  const TensorEntry& tensor = bound.runs.front().stored->main();
  const std::byte* data = bound.weight->matrix.data;
  return data && data >= tensor.data && data < tensor.data + tensor.bytes;
}

// f(tensor, offset, bytes) for the parts of the checkpoint that hold the codes of what a task
// reads.
template <class F>
void ForEachSource(const BoundWeight& bound, const PackTask& task, F f) {
  if (IsMapped(bound)) {
    const ops::PackedMatrix& matrix = bound.weight->matrix;
    const TensorEntry& tensor = bound.runs.front().stored->main();
    return f(tensor, matrix.panel(task.matrix, task.begin) - tensor.data,
             TaskBytes(bound, task));
  }
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

// Points weights whose panels the file has as kernels read them to these.
Status MapPanels(const Binding& binding) {
  for (const BoundWeight& bound : binding.weights) {
    ops::PackedMatrix& matrix = bound.weight->matrix;
    if (!RunsAsStoredPanels(bound)) continue;
    matrix.data = const_cast<std::byte*>(MappedPanels(bound));
    if (matrix.data || !ops::IsQuantised(matrix.format)) continue;
    for (int64_t p = 0; p < matrix.count * matrix.panels(); ++p) {
      if (StoredPanel(bound, p / matrix.panels(), p % matrix.panels())) continue;
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}: the rows of {} that this rank holds are no whole panels of {} "
                               "rows, so they cannot be taken from a mapped checkpoint; load the "
                               "one that it was converted from",
                               binding.checkpoint->directory(), bound.spec.name, ops::kPanelRows)};
    }
  }
  return {};
}

// Bytes of the buffer that a weight needs.
int64_t BytesOf(const BoundWeight& bound) {
  return IsMapped(bound) ? 0 : RoundUp(PackedBytes(bound.spec, *bound.weight), kAlignment);
}

// Of each weight of the binding, whether it is of experts that a router chooses.
std::vector<bool> AreRouted(const Binding& binding) {
  const std::vector<Weight*> routed = RoutedWeights(*binding.model);
  std::vector<bool> are;
  for (const BoundWeight& bound : binding.weights) {
    are.push_back(std::ranges::count(routed, bound.weight) > 0);
  }
  return are;
}

// Gives every weight that is not mapped its place: those of experts in the second buffer, so that
// they can stay where the others leave.
void Place(const Binding& binding) {
  const std::vector<bool> routed = AreRouted(binding);
  int64_t bytes[2] = {};
  for (size_t i = 0; i < routed.size(); ++i) bytes[routed[i]] += BytesOf(binding.weights[i]);
  std::byte* data[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    if (bytes[i] > 0) data[i] = binding.model->memory.emplace_back(bytes[i]).data();
  }
  for (size_t i = 0; i < routed.size(); ++i) {
    const BoundWeight& bound = binding.weights[i];
    const int64_t own = BytesOf(bound);
    if (own == 0) continue;
    std::byte*& next = data[routed[i]];
    if (bound.spec.use == WeightUse::kVector) {
      bound.weight->vector = reinterpret_cast<const float*>(next);
    } else {
      bound.weight->matrix.data = next;
    }
    next += own;
  }
}

// Places each node's part of every matrix (PackedMatrix::PartOf) on that node, whichever thread
// packs it. Boundaries are multiples of huge pages, because a huge page lies on one node.
void PlaceOnNodes(const std::vector<BoundWeight>& weights, const std::vector<int>& nodes) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const int64_t count = std::ssize(nodes);
  for (const BoundWeight& bound : weights) {
    const ops::PackedMatrix& matrix = bound.weight->matrix;
    if (count == 1 || !matrix.data || IsMapped(bound)) continue;
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

void FillVector(const BoundWeight& bound) {
  const WeightSpec& spec = bound.spec;
  float* out = const_cast<float*>(bound.weight->vector);
  const std::vector<float> values = ReadVector(bound);
  for (int64_t i = 0; i < spec.n * spec.k; ++i) {
    const int64_t at = spec.transpose ? i % spec.k * spec.n + i / spec.k : i;
    out[at] = values[static_cast<size_t>(i)];
  }
}

bool IsPageable(const BoundWeight& bound) {
  return bound.spec.part == "experts" && RunsAsStoredPanels(bound) && MappedPanels(bound);
}

// `all_fit`: experts that stay in the file are brought into the page cache too.
Status PackAll(const Binding& binding, bool all_fit, ThreadPool& pool, ProgressMeter& meter) {
  const std::vector<BoundWeight>& bound = binding.weights;
  const Checkpoint& checkpoint = *binding.checkpoint;
  std::vector<PackTask> tasks;
  for (size_t i = 0; i < bound.size(); ++i) AppendTasks(bound[i], i, tasks);
  for (const BoundWeight& weight : bound) {
    if (!all_fit && IsPageable(weight)) weight.weight->matrix.paged = true;
  }
  const ReadAhead ahead(bound, tasks, checkpoint);
  std::mutex mutex;
  std::optional<Error> error;  // the first, under the mutex
  pool.Run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int member) {
    const PackTask& task = tasks[static_cast<size_t>(index)];
    const BoundWeight& source = bound[task.weight];
    if (source.weight->matrix.paged) {
      return meter.Add(task.source_end - task.source_begin, member);
    }
    ahead.Begin(static_cast<size_t>(index));
    ForEachSource(source, task, [&](const TensorEntry& tensor, int64_t offset, int64_t bytes) {
      checkpoint.Populate(tensor, offset, bytes);
    });
    if (IsMapped(source)) return meter.Add(task.source_end - task.source_begin, member);
    if (source.spec.use == WeightUse::kVector) {
      FillVector(source);
    } else {
      ops::PackedMatrix& matrix = source.weight->matrix;
      auto* out = const_cast<std::byte*>(matrix.panel(task.matrix, task.begin));
      if (const Status packed = PackPanels(source, task, out); !packed) {
        std::lock_guard lock(mutex);
        if (!error) error = packed.error();
      }
    }
    ForEachSource(source, task, [&](const TensorEntry& tensor, int64_t offset, int64_t bytes) {
      checkpoint.DontNeed(tensor, offset, bytes);
    });
    meter.Add(task.source_end - task.source_begin, member);
  });
  if (!error) return {};
  return Error{error->code, fmt::format("{}: {}", checkpoint.directory(), error->message)};
}

}  // namespace

int64_t PageableBytes(const Binding& binding) {
  int64_t bytes = 0;
  for (const BoundWeight& bound : binding.weights) {
    bytes += IsPageable(bound) ? bound.weight->matrix.bytes() : 0;
  }
  return bytes;
}

int64_t RoutedBytes(const Binding& binding) {
  const std::vector<bool> routed = AreRouted(binding);
  int64_t bytes = 0;
  for (size_t i = 0; i < routed.size(); ++i) {
    bytes += routed[i] ? binding.weights[i].weight->matrix.bytes() : 0;
  }
  return bytes;
}

LargestWeights LargestWeightsOf(const Binding& binding) {
  const std::vector<bool> routed = AreRouted(binding);
  LargestWeights largest;
  for (size_t i = 0; i < routed.size(); ++i) {
    int64_t& most = routed[i] ? largest.routed_bytes : largest.other_bytes;
    most = std::max(most, BytesOf(binding.weights[i]));
  }
  return largest;
}

Result<ModelWeights> LoadWeights(Binding binding, ThreadPool& pool, const LoadProgress& progress) {
  ModelWeights& model = *binding.model;
  RETURN_IF_ERROR(MapPanels(binding));
  int64_t bytes = 0, elements = 0;
  for (const BoundWeight& bound : binding.weights) {
    bytes += BytesOf(bound);
    elements += bound.elements();
    model.mapped_bytes += IsMapped(bound) ? bound.weight->matrix.bytes() : 0;
  }
  model.bytes = bytes + model.mapped_bytes;
  const int64_t available = AvailableMemory();
  if (model.bytes - PageableBytes(binding) > available) {
    return Error{
        ErrorCode::kExhausted,
        fmt::format("{}: the weights need {} of memory; {} are free",
                    binding.checkpoint->directory(), ByteText(model.bytes), ByteText(available))};
  }
  Place(binding);
  PlaceOnNodes(binding.weights, pool.nodes());
  ProgressMeter meter(progress, elements);
  RETURN_IF_ERROR(PackAll(binding, model.bytes <= available, pool, meter));
  if (progress) progress(1.0);
  if (binding.tied_head) model.head = model.embedding;
  return std::move(model);
}

}  // namespace braid
