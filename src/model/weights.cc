// Loading: bind, then pack in parallel. Tasks are a few megabytes of source each, in the order of
// the model; pages of the map are given back behind them, so the process never holds the model
// twice.
#include "model/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "base/math.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/machine_memory.h"
#include "model/quantities.h"
#include "model/weight_binding.h"

namespace braid {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kTaskSourceBytes = int64_t{4} << 20;

// Where a weight's data goes.
struct Target {
  Weight* weight = nullptr;
  int64_t offset = 0;
};

// Panels [begin, end) of one matrix, or a whole vector.
struct PackTask {
  size_t weight = 0;
  int64_t matrix = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t source_begin = 0;  // of the weight's source bytes
  int64_t source_end = 0;
};

void AppendLayer(const LayerWeightSpecs& specs, LayerWeights& weights,
                 std::vector<const WeightSpec*>& spec_list, std::vector<Weight*>& weight_list) {
  auto append = [&](const WeightSpec& spec, Weight& weight) {
    spec_list.push_back(&spec);
    weight_list.push_back(&weight);
  };
  append(specs.input_norm, weights.input_norm);
  weights.mixer.resize(specs.mixer.size());
  for (size_t i = 0; i < specs.mixer.size(); ++i) append(specs.mixer[i], weights.mixer[i]);
  append(specs.post_norm, weights.post_norm);
  weights.ffn.resize(specs.ffn.size());
  for (size_t i = 0; i < specs.ffn.size(); ++i) append(specs.ffn[i], weights.ffn[i]);
}

// Specs and the weights they fill, side by side.
void Flatten(const ModelWeightSpecs& specs, ModelWeights& weights,
             std::vector<const WeightSpec*>& spec_list, std::vector<Weight*>& weight_list) {
  spec_list.push_back(&specs.embedding);
  weight_list.push_back(&weights.embedding);
  weights.layers.resize(specs.layers.size());
  for (size_t i = 0; i < specs.layers.size(); ++i) {
    AppendLayer(specs.layers[i], weights.layers[i], spec_list, weight_list);
  }
  spec_list.push_back(&specs.final_norm);
  weight_list.push_back(&weights.final_norm);
  if (specs.head) {
    spec_list.push_back(&*specs.head);
    weight_list.push_back(&weights.head);
  }
}

float FloatAt(const std::byte* data, DType dtype) {
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, data, 4);
      return value;
    }
    case DType::kF64: {
      double value;
      std::memcpy(&value, data, 8);
      return static_cast<float>(value);
    }
    default: {
      uint16_t bits;
      std::memcpy(&bits, data, 2);
      return dtype == DType::kF16 ? FloatOfF16(bits) : FloatOfBf16(bits);
    }
  }
}

void FillVector(const BoundWeight& bound, float* out) {
  const WeightSpec& spec = *bound.spec;
  const int64_t element = SizeOf(bound.dtype);
  for (int64_t i = 0; i < spec.n * spec.k; ++i) {
    const int64_t at = spec.transpose ? i % spec.k * spec.n + i / spec.k : i;
    out[at] = FloatAt(bound.At(i * element), bound.dtype);
  }
}

// The same for a weight whose source holds its matrices transposed.
void FillTransposedPanels(const BoundWeight& bound, const ops::PackedMatrix& matrix,
                          const PackTask& task) {
  const int64_t element = SizeOf(bound.dtype), row_bytes = matrix.k * element;
  std::vector<std::byte> gathered(static_cast<size_t>(ops::kPanelRows * row_bytes));
  for (int64_t p = task.begin; p < task.end; ++p) {
    const std::byte* rows[ops::kPanelRows] = {};
    for (int64_t r = 0; r < ops::kPanelRows; ++r) {
      const int64_t row = p * ops::kPanelRows + r;
      if (row >= matrix.n) continue;
      std::byte* to = gathered.data() + r * row_bytes;
      for (int64_t c = 0; c < matrix.k; ++c) {
        const int64_t from = ((task.matrix * matrix.k + c) * matrix.n + row) * element;
        std::memcpy(to + c * element, bound.At(from), static_cast<size_t>(element));
      }
      rows[r] = to;
    }
    ops::PackPanel(matrix, task.matrix, p, rows, bound.dtype);
  }
}

void FillPanels(const BoundWeight& bound, const ops::PackedMatrix& matrix, const PackTask& task) {
  if (bound.spec->transpose) return FillTransposedPanels(bound, matrix, task);

  const int64_t row_bytes = matrix.k * SizeOf(bound.dtype);
  for (int64_t p = task.begin; p < task.end; ++p) {
    const std::byte* rows[ops::kPanelRows] = {};
    for (int64_t r = 0; r < ops::kPanelRows; ++r) {
      const int64_t row = p * ops::kPanelRows + r;
      if (row < matrix.n) rows[r] = bound.At((task.matrix * matrix.n + row) * row_bytes);
    }
    ops::PackPanel(matrix, task.matrix, p, rows, bound.dtype);
  }
}

void AppendTasks(const BoundWeight& bound, size_t index, const ops::PackedMatrix& matrix,
                 std::vector<PackTask>& tasks) {
  const WeightSpec& spec = *bound.spec;
  const int64_t row_bytes = spec.k * SizeOf(bound.dtype);
  if (spec.use == WeightUse::kVector) {
    tasks.push_back({.weight = index, .source_end = spec.n * row_bytes});
    return;
  }
  const int64_t step = std::max<int64_t>(1, kTaskSourceBytes / (ops::kPanelRows * row_bytes));
  for (int64_t m = 0; m < spec.count; ++m) {
    if (spec.transpose) {  // every panel takes from all of the matrix: one task
      const int64_t bytes = spec.n * row_bytes;
      tasks.push_back({index, m, 0, matrix.panels(), m * bytes, (m + 1) * bytes});
      continue;
    }
    for (int64_t p = 0; p < matrix.panels(); p += step) {
      const int64_t end = std::min(p + step, matrix.panels());
      const int64_t first_row = m * spec.n + p * ops::kPanelRows;
      const int64_t last_row = m * spec.n + std::min(spec.n, end * ops::kPanelRows);
      tasks.push_back({index, m, p, end, first_row * row_bytes, last_row * row_bytes});
    }
  }
}

// f(tensor, offset, bytes) for the parts of the checkpoint that a task reads.
template <class F>
void ForEachSource(const BoundWeight& bound, const PackTask& task, F f) {
  for (int64_t at = task.source_begin; at < task.source_end;) {
    const SourceRun& run = bound.RunAt(at);
    const int64_t inside = at - run.weight_offset;
    const int64_t bytes = std::min(run.bytes - inside, task.source_end - at);
    f(*run.tensor, run.tensor_offset + inside, bytes);
    at += bytes;
  }
}

// Sets shapes and formats; returns the offsets of the weights in one buffer and its size.
int64_t LayOut(const std::vector<BoundWeight>& bound, const WeightChoice& choice,
               std::vector<Target>& targets) {
  int64_t bytes = 0;
  for (size_t i = 0; i < bound.size(); ++i) {
    const WeightSpec& spec = *bound[i].spec;
    Weight& weight = *targets[i].weight;
    targets[i].offset = bytes;
    if (spec.use == WeightUse::kVector) {
      bytes += RoundUp(spec.n * spec.k * static_cast<int64_t>(sizeof(float)), kAlignment);
    } else {
      weight.matrix = {.format = FormatOf(spec, bound[i].dtype, choice),
                       .count = spec.count,
                       .n = spec.n,
                       .k = spec.k};
      bytes += RoundUp(weight.matrix.bytes(), kAlignment);
    }
  }
  return bytes;
}

// Calls progress from the pool's caller only, at most once per per cent.
class ProgressMeter {
 public:
  ProgressMeter(const LoadProgress& progress, int64_t total) : progress_(progress), total_(total) {}
  void Add(int64_t bytes, int member) {
    const int64_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
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

void PackAll(const std::vector<BoundWeight>& bound, const std::vector<Target>& targets,
             const Checkpoint& checkpoint, ThreadPool& pool, ProgressMeter& meter) {
  std::vector<PackTask> tasks;
  for (size_t i = 0; i < bound.size(); ++i) {
    AppendTasks(bound[i], i, targets[i].weight->matrix, tasks);
  }
  pool.Run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int member) {
    const PackTask& task = tasks[static_cast<size_t>(index)];
    const BoundWeight& source = bound[task.weight];
    const Weight& weight = *targets[task.weight].weight;
    ForEachSource(source, task, [&](const TensorEntry& tensor, int64_t offset, int64_t bytes) {
      checkpoint.WillNeed(tensor, offset, bytes);
    });
    if (source.spec->use == WeightUse::kVector) {
      FillVector(source, const_cast<float*>(weight.vector));
    } else {
      FillPanels(source, weight.matrix, task);
    }
    ForEachSource(source, task, [&](const TensorEntry& tensor, int64_t offset, int64_t bytes) {
      checkpoint.DontNeed(tensor, offset, bytes);
    });
    meter.Add(task.source_end - task.source_begin, member);
  });
}

LoadReport NewReport(const ModelSpec& spec, const ModelSpec& fitted) {
  LoadReport report;
  if (spec.tied_head && !fitted.tied_head) {
    report.notes.push_back(
        "lm_head.weight is there although tie_word_embeddings is true: it is used");
  }
  return report;
}

}  // namespace

ModelSpec FitToCheckpoint(ModelSpec spec, const Checkpoint& checkpoint) {
  if (checkpoint.Find("lm_head.weight") != nullptr) spec.tied_head = false;
  if (spec.draft) {
    const std::string& prefix = spec.draft->prefix;
    const auto at = checkpoint.tensors().lower_bound(prefix);
    if (at == checkpoint.tensors().end() || !at->first.starts_with(prefix)) spec.draft.reset();
  }
  return spec;
}

ops::WeightFormat FormatOf(const WeightSpec& weight, DType stored, const WeightChoice& choice) {
  const ops::WeightFormat kept = ops::FormatFor(stored);
  if (!choice.format || weight.quantisable == Quantisable::kNever) return kept;
  const bool head = weight.quantisable == Quantisable::kHead;
  if (ops::IsQuantised(*choice.format) && head && !choice.head) return kept;
  // A sum of 65536 products of 8 bits is the largest that 32 bits hold.
  return weight.k <= 65536 ? *choice.format : kept;
}

DType MainTypeOf(const Checkpoint& checkpoint) {
  std::map<DType, int64_t> bytes;
  for (const auto& [name, entry] : checkpoint.tensors()) bytes[entry.dtype] += entry.bytes;
  return std::ranges::max_element(bytes, {}, [](const auto& of) { return of.second; })->first;
}

Result<LoadReport> CheckWeights(const ModelSpec& spec, const Checkpoint& checkpoint) {
  const ModelSpec fitted = FitToCheckpoint(spec, checkpoint);
  const ModelWeightSpecs specs = WeightsOf(fitted);
  ModelWeights unfilled;
  std::vector<const WeightSpec*> spec_list;
  std::vector<Weight*> weight_list;
  Flatten(specs, unfilled, spec_list, weight_list);
  LoadReport report = NewReport(spec, fitted);
  ASSIGN_OR_RETURN(auto bound, BindWeights(fitted, spec_list, checkpoint, &report));
  return report;
}

Result<ModelWeights> LoadWeights(const ModelSpec& spec, const Checkpoint& checkpoint,
                                 ThreadPool& pool, const LoadOptions& options, LoadReport* report) {
  const ModelSpec fitted = FitToCheckpoint(spec, checkpoint);
  const ModelWeightSpecs specs = WeightsOf(fitted);
  if (report != nullptr) *report = NewReport(spec, fitted);
  ModelWeights weights;
  std::vector<const WeightSpec*> spec_list;
  std::vector<Weight*> weight_list;
  Flatten(specs, weights, spec_list, weight_list);
  ASSIGN_OR_RETURN(const std::vector<BoundWeight> bound,
                   BindWeights(fitted, spec_list, checkpoint, report));

  std::vector<Target> targets;
  for (Weight* weight : weight_list) targets.push_back({.weight = weight});
  weights.bytes = LayOut(bound, options.weights, targets);
  if (const int64_t available = AvailableMemory(); weights.bytes > available) {
    return Error{ErrorCode::kExhausted,
                 fmt::format("{}: the weights need {} of memory and {} are available",
                             checkpoint.directory(), ByteText(weights.bytes), ByteText(available))};
  }
  weights.memory.emplace_back(weights.bytes);
  int64_t source_bytes = 0;
  for (size_t i = 0; i < bound.size(); ++i) {
    std::byte* data = weights.memory[0].data() + targets[i].offset;
    Weight& weight = *targets[i].weight;
    if (bound[i].spec->use == WeightUse::kVector) {
      weight.vector = reinterpret_cast<const float*>(data);
    } else {
      weight.matrix.data = data;
    }
    source_bytes += bound[i].runs.back().weight_offset + bound[i].runs.back().bytes;
  }
  ProgressMeter meter(options.progress, source_bytes);
  PackAll(bound, targets, checkpoint, pool, meter);
  if (options.progress) options.progress(1.0);
  if (fitted.tied_head) weights.head = weights.embedding;
  if (report != nullptr) report->bytes_read = source_bytes;
  return weights;
}

}  // namespace braid
