// Runs of rows of every tensor, drawn, changed as files store them, and coded.
#include "model/writing/make_gguf.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "base/math.h"
#include "model/checkpoint/gguf_writer.h"
#include "model/writing/gguf_encode.h"
#include "model/writing/gguf_layout.h"
#include "model/writing/make_model.h"
#include "model/writing/random_weights.h"

namespace braid {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;

// Rows [row, row + count) of a tensor, all of one of its runs.
struct Chunk {
  size_t tensor = 0;
  size_t run = 0;
  int64_t row = 0;
  int64_t count = 0;
};

class GgufMaker {
 public:
  GgufMaker(const MakeGgufRequest& request, const ModelSpec& spec, GgufLayout layout)
      : request_(request),
        spec_(spec),
        layout_(std::move(layout)),
        random_(spec, request.seed, request.given) {}

  Result<MadeModel> Write(ThreadPool& pool);

 private:
  json::object Metadata() const;
  std::vector<GgufTensorPlan> Plan() const;
  std::vector<Chunk> Chunks() const;
  void Draw(const TensorPlan& weight, int64_t row, int64_t count, std::vector<float>& out) const;
  Status WriteChunk(const GgufWriter& file, const GgufType& type, const Chunk& chunk) const;

  const MakeGgufRequest& request_;
  const ModelSpec& spec_;
  const GgufLayout layout_;
  const RandomWeights random_;
  std::mutex mutex_;
  std::optional<Error> error_;  // the first, under the mutex
};

json::object GgufMaker::Metadata() const {
  json::object metadata = {{"general.architecture", layout_.architecture},
                           {"general.type", "model"},
                           {"general.name", std::filesystem::path(request_.path).stem().string()},
                           {"general.file_type", request_.mixture->file_type},
                           {"general.quantization_version", 2},
                           {"tokenizer.ggml.model", "none"}};
  for (const auto& [key, value] : layout_.metadata) metadata[key] = value;
  return metadata;
}

std::vector<GgufTensorPlan> GgufMaker::Plan() const {
  std::vector<GgufTensorSizes> sizes;
  for (const GgufTensorLayout& tensor : layout_.tensors) {
    sizes.push_back({tensor.name, tensor.shape});
  }
  const auto types = GgufTypesOf(*request_.mixture, layout_.sizes, sizes);
  std::vector<GgufTensorPlan> plans;
  for (size_t i = 0; i < sizes.size(); ++i) {
    plans.push_back({.name = sizes[i].name, .type = types[i], .shape = sizes[i].shape});
  }
  return plans;
}

std::vector<Chunk> GgufMaker::Chunks() const {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < layout_.tensors.size(); ++i) {
    const std::vector<GgufRun>& runs = layout_.tensors[i].runs;
    for (size_t r = 0; r < runs.size(); ++r) {
      const int64_t k = layout_.weights[runs[r].weight].shape.back();
      const int64_t step = std::max<int64_t>(1, kChunkElements / k);
      for (int64_t row = 0; row < runs[r].count; row += step) {
        chunks.push_back({i, r, row, std::min(step, runs[r].count - row)});
      }
    }
  }
  return chunks;
}

// Numbers are drawn by fours from the weight's first element on.
void GgufMaker::Draw(const TensorPlan& weight, int64_t row, int64_t count,
                     std::vector<float>& out) const {
  const int64_t k = weight.shape.back(), first = row * k, lead = first % 4;
  out.resize(static_cast<size_t>(count * k + lead));
  random_.Fill(weight, first - lead, count * k + lead, out.data());
  out.erase(out.begin(), out.begin() + lead);
  // Zero-centred norms are stored plus one.
  const auto offset =
      static_cast<float>(DrawOf(weight, layout_.spec).mean - DrawOf(weight, spec_).mean);
  if (offset != 0.0f) {
    for (float& x : out) x += offset;
  }
}

Status GgufMaker::WriteChunk(const GgufWriter& file, const GgufType& type,
                             const Chunk& chunk) const {
  const GgufTensorLayout& tensor = layout_.tensors[chunk.tensor];
  const GgufRun& run = tensor.runs[chunk.run];
  const TensorPlan& weight = layout_.weights[run.weight];
  const int64_t k = weight.shape.back();
  std::vector<float> values, stored(static_cast<size_t>(k));
  Draw(weight, run.row + chunk.row, chunk.count, values);
  const int64_t row_bytes = k / type.block_elements * type.block_bytes;
  std::vector<std::byte> bytes(static_cast<size_t>(chunk.count * row_bytes));
  for (int64_t r = 0; r < chunk.count; ++r) {
    float* row = values.data() + r * k;
    if (tensor.log_of_negative) {
      for (int64_t c = 0; c < k; ++c) row[c] = -std::exp(row[c]);
    }
    if (!tensor.columns.empty()) {
      const float* from = row;
      for (const GgufView::Columns& columns : tensor.columns) {
        std::copy_n(from, columns.count, stored.data() + columns.begin);
        from += columns.count;
      }
      row = stored.data();
    }
    EncodeGgufRow(type, row, k, bytes.data() + r * row_bytes);
  }
  return file.Write(chunk.tensor, (run.begin + chunk.row) * row_bytes, bytes);
}

Result<MadeModel> GgufMaker::Write(ThreadPool& pool) {
  const std::vector<GgufTensorPlan> plans = Plan();
  MadeModel made{.tensors = std::ssize(plans), .files = 1};
  for (const TensorPlan& weight : layout_.weights) made.parameters += weight.elements();
  ASSIGN_OR_RETURN(GgufWriter file, GgufWriter::Create(request_.path, Metadata(), plans));
  made.bytes = file.bytes();
  const std::vector<Chunk> chunks = Chunks();
  std::atomic<int64_t> done = 0;
  pool.Run(std::ssize(chunks), [&](int64_t i, int member) {
    const Chunk& chunk = chunks[static_cast<size_t>(i)];
    const Status status = WriteChunk(file, *plans[chunk.tensor].type, chunk);
    const int64_t count = done.fetch_add(1) + 1;
    if (member == 0 && request_.progress) {
      request_.progress(static_cast<double>(count) / static_cast<double>(chunks.size()));
    }
    if (status) return;
    std::lock_guard lock(mutex_);
    if (!error_) error_ = status.error();
  });
  if (error_) return *error_;
  RETURN_IF_ERROR(file.Finish());
  return made;
}

}  // namespace

Result<MadeModel> MakeGguf(const MakeGgufRequest& request, const ModelSpec& spec,
                           ThreadPool& pool) {
  ASSIGN_OR_RETURN(GgufLayout layout, LayOutGguf(spec));
  GgufMaker maker(request, spec, std::move(layout));
  return maker.Write(pool);
}

}  // namespace braid
