// The config is an example of the family or a published one with the request's keys set, read back
// by the family itself; the tensors are the first source of every weight, quantised as `convert`
// would quantise the model in bf16, in runs of rows.
#include "model/writing/make_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/json.h"
#include "base/math.h"
#include "base/system/file.h"
#include "model/checkpoint/checkpoint_writer.h"
#include "model/checkpoint/formats/export.h"
#include "model/families/families.h"
#include "model/families/published.h"
#include "model/loading/weight_choice.h"
#include "model/spec.h"
#include "model/writing/convert_files.h"
#include "model/writing/make_gguf.h"
#include "model/writing/model_tensors.h"
#include "model/writing/random_weights.h"
#include "model/writing/skewed_routers.h"
#include "tensor/tensor.h"

namespace braid {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;

// ------------------------------------------------------------------ tensors

// The tensors all of whose rows are rows of weights that may be quantised.
std::unordered_set<std::string> QuantisableTensors(const ModelSpec& spec, ExpertTensors experts,
                                                   bool head) {
  std::unordered_map<std::string, bool> allowed;
  for (const WeightSpec& weight : WeightsOf(spec)) {
    const bool may = weight.use == WeightUse::kMatrix && !weight.transpose && MayQuantise(weight) &&
                     (head || weight.quantisable != Quantisable::kHead);
    for (const Piece& piece : PiecesOf(weight, experts)) {
      std::string name = NameOfPiece(piece, spec);
      const bool fits = may && piece.shape.back() == weight.k;
      const auto [at, first] = allowed.emplace(std::move(name), fits);
      if (!first) at->second = at->second && fits;
    }
  }
  std::erase_if(allowed, [](const auto& entry) { return !entry.second; });
  std::unordered_set<std::string> names;
  for (const auto& [name, yes] : allowed) names.insert(name);
  return names;
}

// A tensor of the model in bf16, and the parts that it is written as.
struct MadeTensor {
  TensorPlan plain;
  StoredWeight weight;                    // its name and sizes
  std::optional<WeightExport> quantised;  // of `weight`
  size_t first_part = 0;

  int64_t rows() const { return weight.matrices * weight.rows; }
};

MadeTensor MadeOf(TensorPlan plain) {
  MadeTensor made{.plain = std::move(plain), .weight = {}, .quantised = {}};
  const std::vector<int64_t>& shape = made.plain.shape;
  made.weight.name = made.plain.name;
  made.weight.k = shape.back();
  made.weight.rows = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  for (size_t i = 0; i + 2 < shape.size(); ++i) made.weight.matrices *= shape[i];
  return made;
}

// ------------------------------------------------------------------ files

// Rows of one tensor.
struct Chunk {
  size_t tensor = 0;
  int64_t row = 0;
  int64_t count = 0;
};

class ModelWriter {
 public:
  ModelWriter(const MakeModelRequest& request, const ModelSpec& spec,
              std::map<std::string, std::vector<float>> given)
      : request_(request), spec_(spec), random_(spec, request.seed, std::move(given)) {}

  Result<MadeModel> Write(ThreadPool& pool);
  // What config.json must say of the tensors' format.
  std::optional<json::object> Quantization() const;

 private:
  Result<std::vector<TensorPlan>> Plan();
  std::vector<Chunk> Chunks() const;
  Status WriteChunk(const CheckpointWriter& files, const Chunk& chunk, const Buffer& buffer) const;

  const MakeModelRequest& request_;
  const ModelSpec& spec_;
  RandomWeights random_;
  std::deque<MadeTensor> tensors_;
  std::mutex mutex_;
  std::optional<Error> error_;  // the first, under the mutex
};

// Fills tensors_; returns their parts.
Result<std::vector<TensorPlan>> ModelWriter::Plan() {
  std::unordered_set<std::string> quantisable;
  int64_t columns = 1;
  if (ops::IsQuantised(request_.weights)) columns = ExportColumns(request_.weights);
  // Where scales have many columns, exporters write every expert by itself.
  const ExpertTensors experts = columns > 1 ? ExpertTensors::kSingle : ExpertTensors::kStacked;
  if (ops::IsQuantised(request_.weights)) {
    quantisable = QuantisableTensors(spec_, experts, request_.quantise_head);
  }
  std::vector<TensorPlan> parts;
  for (TensorPlan& plan : PlanTensors(spec_, experts)) {
    MadeTensor& made = tensors_.emplace_back(MadeOf(std::move(plan)));
    made.first_part = parts.size();
    if (!quantisable.contains(made.plain.name)) {
      parts.push_back(made.plain);
      continue;
    }
    if (made.weight.k % columns != 0) {
      return Error{
          ErrorCode::kInvalid,
          fmt::format("\"{}\" has rows of {}; {} has blocks of {} along a row: choose "
                      "sizes that are multiples",
                      made.plain.name, made.weight.k, ops::NameOf(request_.weights), columns),
          "format"};
    }
    made.quantised =
        WeightExport::Quantised(made.weight, request_.weights, random_.Largest(made.plain));
    for (const ExportPart& part : made.quantised->parts()) parts.push_back(part.plan);
  }
  return parts;
}

// Whole rows, from an element on whose number is a multiple of 4.
std::vector<Chunk> ModelWriter::Chunks() const {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int64_t rows = tensors_[i].rows();
    const int64_t step = RoundUp(std::max<int64_t>(1, kChunkElements / tensors_[i].weight.k), 4);
    for (int64_t row = 0; row < rows; row += step) {
      chunks.push_back({i, row, std::min(step, rows - row)});
    }
  }
  return chunks;
}

Status ModelWriter::WriteChunk(const CheckpointWriter& files, const Chunk& chunk,
                               const Buffer& buffer) const {
  const MadeTensor& made = tensors_[chunk.tensor];
  const int64_t begin = chunk.row * made.weight.k, count = chunk.count * made.weight.k;
  if (made.quantised || made.plain.dtype == DType::kF32) {
    random_.Fill(made.plain, begin, count, reinterpret_cast<float*>(buffer.data()));
  } else {
    random_.Fill(made.plain, begin, count, reinterpret_cast<uint16_t*>(buffer.data()));
  }
  if (!made.quantised) {
    const int64_t element = SizeOf(made.plain.dtype);
    return files.Write(made.first_part, begin * element,
                       {buffer.data(), static_cast<size_t>(count * element)});
  }
  const auto* values = reinterpret_cast<const float*>(buffer.data());
  const std::vector<std::vector<std::byte>> bytes = made.quantised->RowsOf(values, chunk.count);
  const std::vector<ExportPart>& parts = made.quantised->parts();
  for (size_t part = 0; part < parts.size(); ++part) {
    const std::vector<std::byte>& whole = parts[part].whole;
    if (!whole.empty() && chunk.row > 0) continue;
    RETURN_IF_ERROR(files.Write(made.first_part + part, chunk.row * parts[part].row_bytes,
                                whole.empty() ? bytes[part] : whole));
  }
  return {};
}

Result<MadeModel> ModelWriter::Write(ThreadPool& pool) {
  ASSIGN_OR_RETURN(std::vector<TensorPlan> parts, Plan());
  MadeModel made{.tensors = std::ssize(parts)};
  ASSIGN_OR_RETURN(
      CheckpointWriter files,
      CheckpointWriter::Create(request_.directory, std::move(parts), request_.shard_bytes_max));
  made.bytes = files.bytes();
  made.files = files.files();
  int64_t chunk_elements = 0;
  for (const MadeTensor& tensor : tensors_) made.parameters += tensor.plain.elements();
  const std::vector<Chunk> chunks = Chunks();
  for (const Chunk& chunk : chunks) {
    chunk_elements = std::max(chunk_elements, chunk.count * tensors_[chunk.tensor].weight.k);
  }
  std::vector<Buffer> buffers;
  for (int i = 0; i < pool.threads(); ++i) {
    buffers.emplace_back(chunk_elements * static_cast<int64_t>(sizeof(float)));
  }
  std::atomic<int64_t> done = 0;
  pool.Run(static_cast<int64_t>(chunks.size()), [&](int64_t i, int member) {
    const Status status =
        WriteChunk(files, chunks[static_cast<size_t>(i)], buffers[static_cast<size_t>(member)]);
    const int64_t count = done.fetch_add(1) + 1;
    if (member == 0 && request_.progress) {
      request_.progress(static_cast<double>(count) / static_cast<double>(chunks.size()));
    }
    if (status) return;
    std::lock_guard lock(mutex_);
    if (!error_) error_ = status.error();
  });
  if (error_) return *error_;
  RETURN_IF_ERROR(files.Finish());
  return made;
}

std::optional<json::object> ModelWriter::Quantization() const {
  if (!ops::IsQuantised(request_.weights)) return {};
  std::vector<TensorPlan> plain;
  for (const MadeTensor& tensor : tensors_) {
    if (!tensor.quantised) plain.push_back(tensor.plain);
  }
  return QuantizationConfigOf(request_.weights, PlainModules(plain));
}

// The config that the request's first word names: "tiny" or "mid" of the family, or that of a
// published model. `named` says whether it names one.
Result<json::object> NamedConfig(const MakeModelRequest& request, bool& named) {
  const std::string word = request.shape.empty() ? "" : request.shape[0];
  named = word == "tiny" || word == "mid";
  for (const PublishedConfig& published : PublishedConfigs()) {
    if (published.name != word) continue;
    named = true;
    ASSIGN_OR_RETURN(json::value config, ParseJson(*published.json, published.name));
    return std::move(config.get_object());
  }
  ASSIGN_OR_RETURN(Family family, FindFamily(request.family));
  return family.example(word == "mid" ? ExampleSize::kMid : ExampleSize::kTiny);
}

// The same with the request's keys. Published configs have those of the text model in a part of
// their own.
Result<json::object> ConfigOf(const MakeModelRequest& request) {
  bool named = false;
  ASSIGN_OR_RETURN(json::object config, NamedConfig(request, named));
  json::value* inner = config.if_contains("text_config");
  for (size_t i = named ? 1 : 0; i < request.shape.size(); ++i) {
    const std::string& word = request.shape[i];
    const size_t equal = word.find('=');
    if (equal == std::string::npos || equal == 0) {
      std::vector<std::string_view> names = {"tiny", "mid"};
      for (const PublishedConfig& published : PublishedConfigs()) names.push_back(published.name);
      return Error{ErrorCode::kInvalid,
                   fmt::format("shape \"{}\": it must be one of {}, or a key of config.json with "
                               "a value, as in num_hidden_layers=8",
                               word, fmt::join(names, ", ")),
                   "shape"};
    }
    const std::string key = word.substr(0, equal);
    ASSIGN_OR_RETURN(json::value value, ParseJson(word.substr(equal + 1), "shape " + key));
    if (inner && !config.contains(key)) {
      inner->get_object()[key] = std::move(value);
    } else {
      SetWhereFound(key, value, config);
      config[key] = std::move(value);
    }
  }
  return config;
}

// Makes the directory if it is not there; it must not hold a model.
Status MakeDirectory(const std::string& directory) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: cannot make the directory: {}", directory, failed.message())};
  }
  std::string held;
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    if (held.empty() && FileExists(directory + "/" + name)) held = name;
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory, failed)) {
    if (held.empty() && entry.path().extension() == ".gguf") held = entry.path().filename();
  }
  if (held.empty()) return {};
  return Error{
      ErrorCode::kInvalid,
      fmt::format("{}: holds {} already; name an empty or a new directory", directory, held)};
}

// A GGUF file: the one that is named, or one in the directory that is.
Result<MadeModel> MakeOneFile(const MakeModelRequest& request, const ModelSpec& spec,
                              std::map<std::string, std::vector<float>> given, ThreadPool& pool) {
  namespace fs = std::filesystem;
  std::string path = request.directory;
  if (!path.ends_with(".gguf")) {
    RETURN_IF_ERROR(MakeDirectory(path));
    const std::string name = fs::canonical(path).filename().string();
    path = fmt::format("{}/{}-{}.gguf", path, name, request.gguf->file_name);
  } else if (FileExists(path)) {
    return Error{ErrorCode::kInvalid, path + ": is there already; name a new file"};
  }
  return MakeGguf({.path = path,
                   .mixture = request.gguf,
                   .seed = request.seed,
                   .given = std::move(given),
                   .progress = request.progress},
                  spec, pool);
}

}  // namespace

std::vector<std::string> MakeableFormats() {
  std::vector<std::string> names = ExportableFormats();
  for (const ops::WeightFormat format : {ops::WeightFormat::kF32, ops::WeightFormat::kF16}) {
    std::erase(names, ops::NameOf(format));
  }
  for (std::string& name : DrawableFormats()) names.push_back(std::move(name));
  return names;
}

Result<MadeModel> MakeModel(const MakeModelRequest& request, ThreadPool& pool) {
  ASSIGN_OR_RETURN(json::object config, ConfigOf(request));
  ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(json::serialize(config), "shape"));
  std::map<std::string, std::vector<float>> given;
  if (request.expert_skew > 0) {
    ASSIGN_OR_RETURN(given, SkewedBiases(spec, request.expert_skew, request.seed));
  }
  if (request.gguf != nullptr) return MakeOneFile(request, spec, std::move(given), pool);
  if (request.directory.ends_with(".gguf")) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} names a GGUF file, and the format is not one of such files: {}",
                             request.directory, fmt::join(GgufMixtureNames(), ", ")),
                 "format"};
  }
  RETURN_IF_ERROR(MakeDirectory(request.directory));
  ModelWriter writer(request, spec, std::move(given));
  ASSIGN_OR_RETURN(MadeModel made, writer.Write(pool));
  if (auto quantization = writer.Quantization()) SetQuantization(std::move(quantization), config);
  RETURN_IF_ERROR(
      WriteFile(request.directory + "/generation_config.json", "{\"do_sample\":false}\n"));
  RETURN_IF_ERROR(WriteFile(request.directory + "/config.json", json::serialize(config) + "\n"));
  return made;
}

}  // namespace braid
