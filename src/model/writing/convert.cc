// Reads, rounds and writes runs of rows in parallel, then writes a config that describes the new
// quantisation.
#include "model/writing/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/json.h"
#include "base/system/file.h"
#include "model/checkpoint/checkpoint_writer.h"
#include "model/checkpoint/formats/export.h"
#include "model/families/families.h"
#include "model/writing/convert_files.h"
#include "model/loading/weight_binding.h"
#include "tensor/finite.h"

namespace braid {
namespace {

constexpr int64_t kTaskElements = int64_t{1} << 21;

// Of matrices that are not quantised.
DType PlainTypeOf(ops::WeightFormat weights) {
  return ops::RowOf(weights).plain.value_or(DType::kBF16);
}

// Types of the plain tensors that keep every bit: parts of one weight need one that holds them all.
using ExactTypes = std::unordered_map<const StoredWeight*, DType>;
ExactTypes ExactTypesOf(const Binding& binding) {
  ExactTypes types;
  for (const BoundWeight& bound : binding.weights) {
    for (const SourceRun& run : bound.runs) {
      const auto [at, first] = types.emplace(run.stored, bound.dtype);
      if (!first && at->second != bound.dtype) at->second = DType::kF32;
    }
  }
  return types;
}

// Plain tensors of one dimension, and those that the loader holds as vectors, keep their type.
WeightExport ExportOf(const StoredWeight& stored, const ConvertRequest& request,
                      const ExactTypes& exact) {
  if (stored.format == nullptr && (stored.main().shape.size() == 1 || stored.rows == 1)) {
    return WeightExport::Plain(stored, stored.dtype);
  }
  if (!ops::IsQuantised(request.weights)) {
    return WeightExport::Plain(stored, PlainTypeOf(request.weights));
  }
  // Codes in the format stay what they are, also where loading would not quantise.
  const bool kept =
      stored.kept && stored.kept->format == request.weights && stored.order.empty();
  if (kept || (stored.quantisable && (request.head || !stored.head))) {
    return WeightExport::Quantised(stored, request.weights);
  }
  // The others (routers, gates, kv_b_proj) keep every bit. Of a draft head, which answers do not
  // depend on, other codes are rounded.
  const auto at = exact.find(&stored);
  if (at != exact.end()) return WeightExport::Plain(stored, at->second);
  return WeightExport::Plain(stored, stored.format ? PlainTypeOf(request.weights) : stored.dtype);
}

// Rows of one weight.
struct Task {
  size_t weight = 0;
  int64_t row = 0;
  int64_t count = 0;
};

// Of rows that have a number which fp16 does not: it may be none in the file either.
Error NotInF16(const StoredWeight& stored, const Task& task) {
  std::vector<float> row(static_cast<size_t>(stored.k));
  auto* bytes = reinterpret_cast<std::byte*>(row.data());
  for (int64_t r = task.row; r < task.row + task.count; ++r) {
    stored.Read(r * stored.k, stored.k, DType::kF32, bytes);
    if (!AllFinite(bytes, stored.k, DType::kF32)) return NotFinite(stored.main().name, r);
  }
  return BeyondF16(stored.name);
}

Status WriteRows(const StoredWeight& stored, const WeightExport& weight, const Task& task,
                 size_t first_part, const CheckpointWriter& writer) {
  const std::vector<std::vector<std::byte>> bytes = weight.Rows(task.row, task.count);
  const TensorPlan& plan = weight.parts()[0].plan;
  if (plan.dtype == DType::kF16 && stored.dtype != DType::kF16 &&
      !AllFinite(bytes[0].data(), std::ssize(bytes[0]) / SizeOf(plan.dtype), plan.dtype)) {
    return NotInF16(stored, task);
  }
  for (size_t part = 0; part < bytes.size(); ++part) {
    RETURN_IF_ERROR(
        writer.Write(first_part + part, task.row * weight.parts()[part].row_bytes, bytes[part]));
  }
  return {};
}

Status WriteTensors(const std::vector<WeightExport>& exports,
                    const std::deque<StoredWeight>& stored, const ConvertRequest& request,
                    const CheckpointWriter& writer, ThreadPool& pool) {
  std::vector<Task> tasks;
  std::vector<size_t> first_part;
  size_t parts = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    const int64_t rows = stored[i].matrices * stored[i].rows;
    const int64_t step = std::max<int64_t>(1, kTaskElements / stored[i].k);
    for (int64_t row = 0; row < rows; row += step) {
      tasks.push_back({i, row, std::min(step, rows - row)});
    }
    first_part.push_back(parts);
    parts += exports[i].parts().size();
  }
  std::mutex mutex;
  std::optional<Error> error;
  std::atomic<size_t> done = 0;
  pool.Run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int member) {
    const Task& task = tasks[static_cast<size_t>(index)];
    const Status status = WriteRows(stored[task.weight], exports[task.weight], task,
                                    first_part[task.weight], writer);
    const double fraction = static_cast<double>(++done) / static_cast<double>(tasks.size());
    if (member == 0 && request.progress) request.progress(fraction);
    if (status) return;
    std::lock_guard lock(mutex);
    if (!error) error = status.error();
  });
  if (error) return *error;
  return {};
}

// The config with new entries for quantisation and for the type of plain weights. A head that the
// checkpoint has beside a config which ties it is found by its plain name alone: the new one says.
Status WriteConfig(const ConvertRequest& request, const OpenedModel& model,
                   const std::vector<WeightExport>& exports) {
  json::object config = model.config;
  SetWhereFound("tie_word_embeddings", model.spec.tied_head, config);
  const DType plain_type = PlainTypeOf(request.weights);
  const char* type = plain_type == DType::kF32   ? "float32"
                     : plain_type == DType::kF16 ? "float16"
                                                 : "bfloat16";
  for (const char* key : {"dtype", "torch_dtype"}) SetWhereFound(key, type, config);
  std::optional<json::object> quantization;
  if (ops::IsQuantised(request.weights)) {
    std::vector<TensorPlan> plain;
    for (const WeightExport& weight : exports) {
      if (!weight.quantised()) plain.push_back(weight.parts()[0].plan);
    }
    quantization = QuantizationConfigOf(request.weights, PlainModules(plain));
  }
  SetQuantization(std::move(quantization), config);
  return WriteFile(request.to + "/config.json", json::serialize(config) + "\n");
}

}  // namespace

Result<Converted> ConvertCheckpoint(const ConvertRequest& request, ThreadPool& pool) {
  if (!IsDirectory(request.from)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} is not a directory; convert needs a directory with "
                             "config.json and safetensors files (GGUF files run as they are)",
                             request.from)};
  }
  ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(request.from));
  if (!model.checkpoint.gguf_config().empty()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} holds a GGUF model: GGUF files run as they are; with --mapped "
                             "they are converted",
                             request.from)};
  }
  RETURN_IF_ERROR(CheckIsOriginal(model.spec, request.from));
  ASSIGN_OR_RETURN(const Binding binding, BindWeights(model.spec, model.checkpoint));
  const std::deque<StoredWeight>& stored = binding.stored;
  RETURN_IF_ERROR(MakeEmptyDirectory(request.to));
  Converted converted;
  std::vector<WeightExport> exports;
  std::vector<TensorPlan> plans;
  const ExactTypes exact = ExactTypesOf(binding);
  for (const StoredWeight& weight : stored) {
    const WeightExport& made = exports.emplace_back(ExportOf(weight, request, exact));
    for (const ExportPart& part : made.parts()) plans.push_back(part.plan);
    if (made.quantised()) ++converted.quantised;
    const DType type = made.parts()[0].plan.dtype;
    const bool half = type == DType::kBF16 || type == DType::kF16;
    if (half && weight.dtype != type) ++converted.rounded;
  }
  converted.tensors = std::ssize(plans);
  ASSIGN_OR_RETURN(CheckpointWriter writer,
                   CheckpointWriter::Create(request.to, std::move(plans), request.shard_bytes_max));
  RETURN_IF_ERROR(WriteTensors(exports, stored, request, writer, pool));
  RETURN_IF_ERROR(CopyOtherFiles(request.from, request.to));
  RETURN_IF_ERROR(WriteConfig(request, model, exports));
  RETURN_IF_ERROR(writer.Finish());
  converted.bytes = writer.bytes();
  converted.files = writer.files();
  return converted;
}

}  // namespace braid
