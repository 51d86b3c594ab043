// Tensors are read, rounded and written in runs of rows, in parallel; the config loses what it said
// about quantisation.
#include "model/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "model/checkpoint_writer.h"
#include "model/families/families.h"
#include "model/formats/storage_format.h"
#include "model/weights.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTaskElements = int64_t{1} << 21;
constexpr uintmax_t kCopyBytesMax = uintmax_t{256} << 20;

struct Task {
  size_t tensor = 0;
  int64_t first = 0;  // element
  int64_t count = 0;
};

// Plain tensors of one dimension, and those that the loader holds as vectors, keep their type.
DType TypeOf(const StoredWeight& stored, DType wanted) {
  const std::vector<int64_t>& shape = stored.main().shape;
  const bool vector = stored.format == nullptr && (shape.size() == 1 || stored.rows == 1);
  return vector ? stored.dtype : wanted;
}

std::vector<int64_t> ShapeOf(const StoredWeight& stored) {
  if (stored.format == nullptr) return stored.main().shape;
  if (stored.matrices > 1) return {stored.matrices, stored.rows, stored.k};
  return {stored.rows, stored.k};
}

// Elements as `type`; rounding to bf16 is to nearest even.
void Read(const StoredWeight& stored, const Task& task, DType type, std::vector<std::byte>& out) {
  out.resize(static_cast<size_t>(task.count * SizeOf(type)));
  if (type == stored.dtype || type == DType::kF32) {
    return stored.Read(task.first, task.count, type, out.data());
  }
  std::vector<float> values(static_cast<size_t>(task.count));
  stored.Read(task.first, task.count, DType::kF32, reinterpret_cast<std::byte*>(values.data()));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = Bf16OfFloat(values[i]);
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
}

Status WriteTensors(const std::deque<StoredWeight>& stored, const ConvertRequest& request,
                    const CheckpointWriter& writer, ThreadPool& pool) {
  std::vector<Task> tasks;
  for (size_t i = 0; i < stored.size(); ++i) {
    const int64_t step = std::max<int64_t>(1, kTaskElements / stored[i].k) * stored[i].k;
    for (int64_t at = 0; at < stored[i].elements(); at += step) {
      tasks.push_back({i, at, std::min(step, stored[i].elements() - at)});
    }
  }
  std::mutex mutex;
  std::optional<Error> error;
  std::atomic<size_t> done = 0;
  pool.Run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int member) {
    const Task& task = tasks[static_cast<size_t>(index)];
    const DType type = writer.tensors()[task.tensor].dtype;
    std::vector<std::byte> bytes;
    Read(stored[task.tensor], task, type, bytes);
    const Status status = writer.Write(task.tensor, task.first * SizeOf(type), bytes);
    const double fraction = static_cast<double>(++done) / static_cast<double>(tasks.size());
    if (member == 0 && request.progress) request.progress(fraction);
    if (status) return;
    std::lock_guard lock(mutex);
    if (!error) error = status.error();
  });
  if (error) return *error;
  return {};
}

// The config without its word on quantised weights.
Status WriteConfig(const ConvertRequest& request) {
  ASSIGN_OR_RETURN(json::value config, ReadJsonFile(request.from + "/config.json"));
  json::object& root = config.get_object();
  json::object* inner = root.contains("text_config") ? root["text_config"].if_object() : nullptr;
  for (json::object* object : {&root, inner}) {
    if (object == nullptr) continue;
    object->erase("quantization_config");
    object->erase("compression_config");
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (!object->contains(key)) continue;
      (*object)[key] = request.weights == DType::kF32 ? "float32" : "bfloat16";
    }
  }
  return WriteFile(request.to + "/config.json", json::serialize(config) + "\n");
}

Status CopyOtherFiles(const ConvertRequest& request) {
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(request.from, failed)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "config.json" || name == "hf_quant_config.json" ||
                      name.ends_with(".safetensors") || name.ends_with(".index.json");
    if (ours || !entry.is_regular_file(failed) || entry.file_size(failed) > kCopyBytesMax) continue;
    fs::copy_file(entry.path(), request.to + "/" + name, failed);
    if (failed) {
      return Error{ErrorCode::kInternal,
                   fmt::format("{}: cannot copy it to {}: {}", entry.path().string(), request.to,
                               failed.message())};
    }
  }
  return {};
}

Status MakeDirectory(const std::string& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: cannot make the directory: {}", directory, failed.message())};
  }
  if (!fs::is_empty(directory, failed)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} is not empty; name a new directory", directory)};
  }
  return {};
}

}  // namespace

Result<Converted> ConvertCheckpoint(const ConvertRequest& request, ThreadPool& pool) {
  if (!IsDirectory(request.from)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} is not a directory; what is converted is a directory with "
                             "config.json and safetensors files (GGUF files run as they are)",
                             request.from)};
  }
  ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(request.from));
  ASSIGN_OR_RETURN(const std::deque<StoredWeight> stored,
                   StoredWeightsOf(model.spec, model.checkpoint));
  RETURN_IF_ERROR(MakeDirectory(request.to));
  Converted converted;
  std::vector<TensorPlan> plans;
  for (const StoredWeight& weight : stored) {
    const DType type = TypeOf(weight, request.weights);
    plans.push_back({weight.name, type, ShapeOf(weight)});
    if (type == DType::kBF16 && weight.dtype != DType::kBF16) ++converted.rounded;
  }
  ASSIGN_OR_RETURN(CheckpointWriter writer,
                   CheckpointWriter::Create(request.to, std::move(plans), request.shard_bytes_max));
  RETURN_IF_ERROR(WriteTensors(stored, request, writer, pool));
  RETURN_IF_ERROR(CopyOtherFiles(request));
  RETURN_IF_ERROR(WriteConfig(request));
  RETURN_IF_ERROR(writer.Finish());
  converted.tensors = static_cast<int64_t>(stored.size());
  converted.bytes = writer.bytes();
  converted.files = writer.files();
  return converted;
}

}  // namespace braid
