// The loader's tasks, whose results go to a file. Matrices come first in the file: their sizes are
// multiples of 64 bytes, so that each begins at one.
#include "model/writing/convert_panels.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>

#include "base/json.h"
#include "base/system/file.h"
#include "model/checkpoint/checkpoint_writer.h"
#include "model/checkpoint/gguf_file.h"
#include "model/families/families.h"
#include "model/loading/pack_weights.h"
#include "model/loading/stored_panels.h"
#include "model/loading/weight_binding.h"
#include "model/writing/convert_files.h"
#include "ops/layout_digest.h"
#include "tensor/tensor.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

TensorPlan PlanOf(const BoundWeight& bound) {
  const std::string name = PanelName(bound.spec);
  if (bound.spec.use == WeightUse::kVector) {
    return {.name = name, .dtype = DType::kF32, .shape = {bound.spec.n, bound.spec.k}};
  }
  const ops::PackedMatrix& matrix = bound.weight->matrix;
  const StorageFormat& format = PanelFormat(matrix.format);
  return {.name = fmt::format("{}{}", name, format.parts[0].suffix),
          .dtype = DType::kU8,
          .shape = PanelShape(matrix)};
}

// Where the tensors of the binding's weights stand in the file: matrices first.
std::vector<size_t> OrderOf(const Binding& binding) {
  std::vector<size_t> order;
  for (const WeightUse use : {WeightUse::kMatrix, WeightUse::kVector}) {
    for (size_t i = 0; i < binding.weights.size(); ++i) {
      if (binding.weights[i].spec.use == use) order.push_back(i);
    }
  }
  return order;
}

class PanelWriter {
 public:
  PanelWriter(const Binding& binding, const CheckpointWriter& files,
              const std::vector<size_t>& order)
      : binding_(binding), files_(files), place_(order.size()) {
    for (size_t i = 0; i < order.size(); ++i) place_[order[i]] = i;
  }

  Status Write(ThreadPool& pool, const std::function<void(double)>& progress) {
    std::vector<PackTask> tasks;
    for (size_t i = 0; i < binding_.weights.size(); ++i) {
      AppendTasks(binding_.weights[i], i, tasks);
    }
    std::atomic<size_t> done = 0;
    pool.Run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int member) {
      const Status status = WriteTask(tasks[static_cast<size_t>(index)]);
      const double fraction = static_cast<double>(++done) / static_cast<double>(tasks.size());
      if (member == 0 && progress) progress(fraction);
      if (status) return;
      std::lock_guard lock(mutex_);
      if (!error_) error_ = status.error();
    });
    if (error_) return *error_;
    return {};
  }

 private:
  Status WriteTask(const PackTask& task) {
    const BoundWeight& bound = binding_.weights[task.weight];
    const size_t place = place_[task.weight];
    if (bound.spec.use == WeightUse::kVector) {
      const std::vector<float> values = ReadVector(bound);
      return files_.Write(place, 0, std::as_bytes(std::span(values)));
    }
    const ops::PackedMatrix& matrix = bound.weight->matrix;
    const Buffer panels(TaskBytes(bound, task));
    RETURN_IF_ERROR(PackPanels(bound, task, panels.data()));
    const int64_t first = task.matrix * matrix.matrix_bytes() + task.begin * matrix.panel_bytes();
    return files_.Write(place, first, {panels.data(), static_cast<size_t>(panels.bytes())});
  }

  const Binding& binding_;
  const CheckpointWriter& files_;
  std::vector<size_t> place_;  // of a weight: its tensor
  std::mutex mutex_;
  std::optional<Error> error_;  // the first, under the mutex
};

// The family's own config with what this checkpoint has.
json::object ConfigOf(const OpenedModel& model, const Binding& binding) {
  json::object layouts;
  for (const BoundWeight& bound : binding.weights) {
    if (bound.spec.use == WeightUse::kVector) continue;
    const ops::WeightFormat format = bound.weight->matrix.format;
    layouts[ops::NameOf(format)] = ops::LayoutDigest(format);
  }
  json::object config = model.config;
  SetQuantization(json::object{{"quant_method", kPanelsMethod},
                               {"layouts", std::move(layouts)},
                               {"norm_offset", model.spec.norm.offset}},
                  config);
  config["tie_word_embeddings"] = model.spec.tied_head;
  SetWhereFound("tie_word_embeddings", model.spec.tied_head, config);
  return config;
}

// The text files of a GGUF model: those inside, and those beside it that the engine reads.
Status WriteGgufText(const std::string& from, const std::string& to) {
  ASSIGN_OR_RETURN(const json::object tokenizer, ReadGgufTokenizer(from));
  RETURN_IF_ERROR(
      WriteFile(to + "/" + std::string(kGgufTokenizerFile), json::serialize(tokenizer) + "\n"));
  const fs::path folder = fs::absolute(from).parent_path();
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "tiktoken.model",
                           "chat_template.jinja", "generation_config.json"}) {
    std::error_code failed;
    if (!fs::is_regular_file(folder / name, failed)) continue;
    fs::copy_file(folder / name, fs::path(to) / name, failed);
    if (failed) {
      return Error{ErrorCode::kInternal,
                   fmt::format("{}: cannot copy it to {}: {}", (folder / name).string(), to,
                               failed.message())};
    }
  }
  return {};
}

}  // namespace

Result<Converted> ConvertToPanels(const PanelsRequest& request, ThreadPool& pool) {
  ASSIGN_OR_RETURN(const std::string from, FindModel(request.from));
  ASSIGN_OR_RETURN(OpenedModel model, OpenModel(from));
  RETURN_IF_ERROR(CheckIsOriginal(model.spec, from));
  if (HasDraftHead(model.spec)) UseDraftHead(model.spec);
  ASSIGN_OR_RETURN(const Binding binding,
                   BindWeights(model.spec, model.checkpoint, request.choice));
  RETURN_IF_ERROR(MakeEmptyDirectory(request.to));
  const std::vector<size_t> order = OrderOf(binding);
  Converted converted;
  std::vector<TensorPlan> plans;
  for (const size_t i : order) {
    const BoundWeight& bound = binding.weights[i];
    plans.push_back(PlanOf(bound));
    const bool matrix = bound.spec.use == WeightUse::kMatrix;
    if (matrix && ops::IsQuantised(bound.weight->matrix.format)) ++converted.quantised;
  }
  converted.tensors = std::ssize(plans);
  ASSIGN_OR_RETURN(CheckpointWriter files,
                   CheckpointWriter::Create(request.to, std::move(plans), request.shard_bytes_max));
  RETURN_IF_ERROR(PanelWriter(binding, files, order).Write(pool, request.progress));
  RETURN_IF_ERROR(IsDirectory(from) ? CopyOtherFiles(from, request.to)
                                    : WriteGgufText(from, request.to));
  RETURN_IF_ERROR(
      WriteFile(request.to + "/config.json", json::serialize(ConfigOf(model, binding)) + "\n"));
  RETURN_IF_ERROR(files.Finish());
  converted.bytes = files.bytes();
  converted.files = files.files();
  return converted;
}

}  // namespace braid
