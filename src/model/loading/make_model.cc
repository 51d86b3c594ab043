// The config is an example of the family with the request's keys set, read back by the family
// itself; the tensors are the first source of every weight. Values are quantiles looked up by 16
// random bits, a function of (seed, tensor, index), so threads and shards do not change them.
#include "model/loading/make_model.h"

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "base/json.h"
#include "base/math.h"
#include "base/rng.h"
#include "base/system/file.h"
#include "model/checkpoint/checkpoint_writer.h"
#include "model/families/families.h"
#include "model/spec.h"
#include "tensor/tensor.h"

namespace braid {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr int kQuantileBits = 12;
constexpr size_t kQuantiles = size_t{1} << kQuantileBits;

// ------------------------------------------------------------------ what to draw

struct Draw {
  double mean = 0;
  double deviation = 1;  // of a normal draw; half the width of a uniform one
  bool uniform = false;
  DType dtype = DType::kBF16;
};

struct Rule {
  std::string_view suffix;
  double gain;  // size of the outputs for inputs of size one
  bool branch;  // adds to the residual stream and must stay small beside it
};
// Matrices whose outputs are not simply of size one.
constexpr Rule kRules[] = {
    {"lm_head.weight", 2.5, false},     {"mlp.gate.weight", 1.5, false},
    {"expert_gate.weight", 1.5, false}, {"in_proj_b.weight", 1.5, false},
    {"gate_proj.weight", 1.3, false},   {"gate_up_proj", 1.15, false},
    {"o_proj.weight", 1.5, true},       {"out_proj.weight", 1.0, true},
    {"dense.weight", 1.5, true},        {"w2.weight", 1.2, true},
    {"down_proj.weight", 1.2, true},    {"down_proj", 1.2, true},
};

Draw DrawOf(const TensorPlan& tensor, const ModelSpec& spec) {
  const std::string& name = tensor.name;
  const double hidden = spec.hidden;
  // A tied embedding is also the head.
  const double embedding = spec.tied_head ? 2.5 / std::sqrt(hidden) : 1.0;
  if (name.ends_with("A_log")) return {0.25, 2.25, true, DType::kF32};
  if (name.ends_with("dt_bias")) return {-2.0, 3.0, true};
  if (name.ends_with("linear_attn.norm.weight")) return {1.0, 0.2, false, DType::kF32};
  if (name.ends_with("conv1d.weight")) return {0.0, 0.5};
  if (name.ends_with(spec.embedding.substr(1) + ".weight")) return {0.0, embedding};
  if (name.ends_with("_bias")) return {0.0, 0.2, false, DType::kF32};
  if (tensor.shape.size() == 1) return {1.0 - spec.norm.offset, 0.2};
  const double one = 1.0 / std::sqrt(static_cast<double>(tensor.shape.back()));
  for (const Rule& rule : kRules) {
    if (name.ends_with(rule.suffix)) {
      return {0.0, one * rule.gain * (rule.branch ? 0.4 * embedding : 1.0)};
    }
  }
  return {0.0, one};
}

// The first source of every weight, each tensor once.
std::vector<TensorPlan> PlanTensors(const ModelSpec& spec) {
  std::vector<TensorPlan> plans;
  std::unordered_set<std::string> seen;
  auto add = [&](const WeightSpec& weight) {
    for (const Piece& piece : weight.sources.front()) {
      TensorPlan plan{.name = piece.tensor, .shape = piece.shape};
      if (plan.name.starts_with('@')) plan.name = spec.prefixes.back() + plan.name.substr(1);
      if (!seen.insert(plan.name).second) continue;
      plan.dtype = DrawOf(plan, spec).dtype;
      plans.push_back(std::move(plan));
    }
  };
  for (const WeightSpec& weight : WeightsOf(spec)) add(weight);
  if (spec.draft && spec.draft->declared) {
    for (const WeightSpec& weight : DraftWeightsOf(spec)) add(weight);
  }
  return plans;
}

// ------------------------------------------------------------------ values

using Table = std::array<double, kQuantiles>;

// The normal distribution's quantiles at the middles of equal steps, by bisection.
std::unique_ptr<Table> NormalQuantiles() {
  auto table = std::make_unique<Table>();
  for (size_t i = 0; i < kQuantiles; ++i) {
    const double want = (static_cast<double>(i) + 0.5) / kQuantiles;
    double low = -6, high = 6;
    for (int step = 0; step < 50; ++step) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < want ? low : high) = middle;
    }
    (*table)[i] = low;
  }
  return table;
}

std::unique_ptr<Table> UniformQuantiles() {
  auto table = std::make_unique<Table>();
  for (size_t i = 0; i < kQuantiles; ++i) {
    (*table)[i] = 2 * (static_cast<double>(i) + 0.5) / kQuantiles - 1;
  }
  return table;
}

uint64_t HashName(std::string_view name) {  // FNV-1a: the same on every machine
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// Elements [begin, begin + count) of a stream, four from each 64 random bits; `begin` is a multiple
// of 4.
template <class T>
void Fill(const std::array<T, kQuantiles>& values, uint64_t stream, int64_t begin, int64_t count,
          T* out) {
  for (int64_t i = 0; i < count; i += 4) {
    uint64_t bits = RandomBits(stream, static_cast<uint64_t>((begin + i) / 4));
    const int64_t n = std::min<int64_t>(4, count - i);
    for (int64_t j = 0; j < n; ++j) {
      out[i + j] = values[bits & (kQuantiles - 1)];
      bits >>= 16;
    }
  }
}

// ------------------------------------------------------------------ files

struct Chunk {
  size_t tensor = 0;
  int64_t begin = 0;  // element
  int64_t count = 0;
};

class ModelWriter {
 public:
  ModelWriter(const MakeModelRequest& request, const ModelSpec& spec)
      : request_(request), spec_(spec), normal_(NormalQuantiles()), uniform_(UniformQuantiles()) {}

  Result<MadeModel> Write(ThreadPool& pool);

 private:
  void WriteChunk(const CheckpointWriter& files, const Chunk& chunk, std::byte* buffer);

  const MakeModelRequest& request_;
  const ModelSpec& spec_;
  std::unique_ptr<Table> normal_;
  std::unique_ptr<Table> uniform_;
  std::mutex mutex_;
  std::optional<Error> error_;  // the first, under the mutex
};

void ModelWriter::WriteChunk(const CheckpointWriter& files, const Chunk& chunk, std::byte* buffer) {
  const TensorPlan& plan = files.tensors()[chunk.tensor];
  const Draw draw = DrawOf(plan, spec_);
  const Table& unit = draw.uniform ? *uniform_ : *normal_;
  const uint64_t stream = MixBits(request_.seed + 1) ^ HashName(plan.name);
  auto scaled = [&](size_t i) { return static_cast<float>(draw.mean + draw.deviation * unit[i]); };
  if (plan.dtype == DType::kF32) {
    std::array<float, kQuantiles> values;
    for (size_t i = 0; i < kQuantiles; ++i) values[i] = RoundToBf16(scaled(i));
    Fill(values, stream, chunk.begin, chunk.count, reinterpret_cast<float*>(buffer));
  } else {
    std::array<uint16_t, kQuantiles> values;
    for (size_t i = 0; i < kQuantiles; ++i) values[i] = Bf16OfFloat(scaled(i));
    Fill(values, stream, chunk.begin, chunk.count, reinterpret_cast<uint16_t*>(buffer));
  }
  const int64_t element = SizeOf(plan.dtype);
  Status status = files.Write(chunk.tensor, chunk.begin * element,
                              {buffer, static_cast<size_t>(chunk.count * element)});
  if (status) return;
  std::lock_guard lock(mutex_);
  if (!error_) error_ = status.error();
}

Result<MadeModel> ModelWriter::Write(ThreadPool& pool) {
  ASSIGN_OR_RETURN(
      CheckpointWriter files,
      CheckpointWriter::Create(request_.directory, PlanTensors(spec_), request_.shard_bytes_max));
  MadeModel made{.bytes = files.bytes(), .files = files.files()};
  std::vector<Chunk> chunks;
  for (size_t tensor = 0; tensor < files.tensors().size(); ++tensor) {
    const int64_t elements = files.tensors()[tensor].elements();
    ++made.tensors;
    made.parameters += elements;
    for (int64_t at = 0; at < elements; at += kChunkElements) {
      chunks.push_back({tensor, at, std::min(kChunkElements, elements - at)});
    }
  }
  std::vector<Buffer> buffers;
  for (int i = 0; i < pool.threads(); ++i) {
    buffers.emplace_back(kChunkElements * static_cast<int64_t>(sizeof(float)));
  }
  std::atomic<int64_t> done = 0;
  pool.Run(static_cast<int64_t>(chunks.size()), [&](int64_t i, int member) {
    WriteChunk(files, chunks[static_cast<size_t>(i)], buffers[static_cast<size_t>(member)].data());
    const int64_t count = done.fetch_add(1) + 1;
    if (member == 0 && request_.progress) {
      request_.progress(static_cast<double>(count) / static_cast<double>(chunks.size()));
    }
  });
  if (error_) return *error_;
  RETURN_IF_ERROR(files.Finish());
  return made;
}

// The example's config with the request's keys.
Result<json::object> ConfigOf(const MakeModelRequest& request, const Family& family) {
  const bool mid = !request.shape.empty() && request.shape[0] == "mid";
  const bool named = mid || (!request.shape.empty() && request.shape[0] == "tiny");
  json::object config = family.example(mid ? ExampleSize::kMid : ExampleSize::kTiny);
  for (size_t i = named ? 1 : 0; i < request.shape.size(); ++i) {
    const std::string& word = request.shape[i];
    const size_t equal = word.find('=');
    if (equal == std::string::npos || equal == 0) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("shape \"{}\": it must be tiny, mid, or a key of config.json with a "
                               "value, as in num_hidden_layers=8",
                               word),
                   "shape"};
    }
    const std::string key = word.substr(0, equal);
    ASSIGN_OR_RETURN(config[key], ParseJson(word.substr(equal + 1), "shape " + key));
  }
  return config;
}

}  // namespace

Result<MadeModel> MakeModel(const MakeModelRequest& request, ThreadPool& pool) {
  ASSIGN_OR_RETURN(Family family, FindFamily(request.family));
  ASSIGN_OR_RETURN(const json::object config, ConfigOf(request, family));
  const std::string text = json::serialize(config);
  ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(text, "shape"));
  std::error_code failed;
  std::filesystem::create_directories(request.directory, failed);
  if (failed) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: cannot make the directory: {}",
                                                  request.directory, failed.message())};
  }
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    if (FileExists(request.directory + "/" + name)) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}: holds {} already; name an empty or a new directory",
                               request.directory, name)};
    }
  }
  ASSIGN_OR_RETURN(MadeModel made, ModelWriter(request, spec).Write(pool));
  RETURN_IF_ERROR(
      WriteFile(request.directory + "/generation_config.json", "{\"do_sample\":false}\n"));
  RETURN_IF_ERROR(WriteFile(request.directory + "/config.json", text + "\n"));
  return made;
}

}  // namespace braid
