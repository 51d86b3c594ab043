// See the header.
#include "model/writing/gguf_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <variant>

#include "model/families/families.h"

namespace braid {
namespace {

struct Found {
  GgufFamily family;
  std::string_view architecture;
};

// By the architecture of config.json, else by that of another model of the same family.
Result<Found> FindGgufFamily(const ModelSpec& spec) {
  ASSIGN_OR_RETURN(const Family family, FindFamily(spec.family));
  std::optional<Found> found;
  std::vector<std::string_view> known;
  for (GgufFamily& gguf : GgufFamilies()) {
    for (const GgufFamily::Architecture& one : gguf.architectures) {
      known.push_back(one.gguf);
      if (one.hf == spec.architecture) return Found{gguf, one.gguf};
      if (std::ranges::count(family.architectures, one.hf) > 0) found = Found{gguf, one.gguf};
    }
  }
  if (found) return *found;
  return Error{ErrorCode::kInvalid,
               fmt::format("there are no GGUF files of {}; they can have the architectures {}",
                           spec.architecture, fmt::join(known, ", ")),
               "format"};
}

Error NoTensorFor(const TensorPlan& weight) {
  return {ErrorCode::kInvalid,
          fmt::format("GGUF files of this family have no tensor for \"{}\"; write another format",
                      weight.name),
          "format"};
}

class Layouter {
 public:
  explicit Layouter(GgufLayout& layout) : layout_(layout) {
    for (size_t i = 0; i < layout.weights.size(); ++i) at_[layout.weights[i].name] = i;
    used_.resize(layout.weights.size());
  }

  void Add(const GgufWanted& wanted);
  Status Finish();

 private:
  // Mappings name weights below "model.", checkpoints perhaps below another prefix.
  std::optional<size_t> Find(const std::string& name) const {
    constexpr std::string_view kPrefix = "model.";
    auto at = at_.find(name);
    if (at == at_.end() && name.starts_with(kPrefix)) {
      at = at_.find(layout_.spec.prefixes.back() + name.substr(kPrefix.size()));
    }
    if (at == at_.end()) return {};
    return at->second;
  }
  GgufTensorLayout& Tensor(const std::string& name);

  GgufLayout& layout_;
  std::unordered_map<std::string, size_t> at_;          // of weights
  std::unordered_map<std::string, size_t> tensors_at_;  // of layout_.tensors
  std::vector<bool> used_;
};

GgufTensorLayout& Layouter::Tensor(const std::string& name) {
  const auto [at, added] = tensors_at_.emplace(name, layout_.tensors.size());
  if (added) layout_.tensors.push_back({.name = name});
  return layout_.tensors[at->second];
}

// What the model does not have is not in the file: a tied head, for example.
void Layouter::Add(const GgufWanted& wanted) {
  const std::optional<size_t> found = Find(wanted.name);
  if (!found) return;
  used_[*found] = true;
  const TensorPlan& weight = layout_.weights[*found];
  const int64_t columns = weight.shape.back();
  std::vector<GgufRows> rows = wanted.rows;
  const bool whole = rows.empty();
  if (whole) rows.push_back({wanted.tensor, 0, weight.elements() / columns});
  int64_t row = 0;
  for (const GgufRows& part : rows) {
    GgufTensorLayout& tensor = Tensor(part.tensor);
    tensor.runs.push_back({part.begin, part.count, *found, row});
    row += part.count;
    tensor.columns = wanted.columns;
    tensor.log_of_negative = wanted.log_of_negative;
    if (!wanted.stored.empty()) {
      tensor.shape = wanted.stored;
    } else if (whole) {
      tensor.shape = weight.shape;
    } else {  // of rows, which other weights may add to
      tensor.shape.resize(2);
      tensor.shape[0] = std::max(tensor.shape[0], part.begin + part.count);
      tensor.shape[1] = columns;
    }
  }
}

Status Layouter::Finish() {
  for (size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) return NoTensorFor(layout_.weights[i]);
  }
  for (GgufTensorLayout& tensor : layout_.tensors) {
    std::ranges::sort(tensor.runs, {}, &GgufRun::begin);
    int64_t rows = 1, next = 0;
    const TensorPlan& weight = layout_.weights[tensor.runs.front().weight];
    for (size_t i = 0; i < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    rows /= weight.shape.back();
    for (const GgufRun& run : tensor.runs) {
      if (run.begin != next) return NoTensorFor(weight);
      next = run.begin + run.count;
    }
    if (next != rows) return NoTensorFor(weight);
  }
  return {};
}

GgufModelSizes SizesOf(const ModelSpec& spec) {
  GgufModelSizes sizes{.blocks = static_cast<int64_t>(spec.layers.size()) + DraftBlocks(spec),
                       .tied = spec.tied_head};
  if (const auto* moe = FirstFfn<MoeFfn>(spec)) sizes.experts = moe->experts;
  if (const auto* full = FirstMixer<FullAttention>(spec)) {
    sizes.heads_per_kv_head = full->heads / full->kv_heads;
  }
  return sizes;
}

}  // namespace

Result<GgufLayout> LayOutGguf(const ModelSpec& spec) {
  ASSIGN_OR_RETURN(const Found found, FindGgufFamily(spec));
  GgufLayout layout{.architecture = std::string(found.architecture), .spec = spec};
  // Heads of several layers are left out, as readers of such files do.
  if (DraftBlocks(spec) == 0 && layout.spec.draft) layout.spec.draft->declared = false;
  ASSIGN_OR_RETURN(const json::object keys, found.family.metadata(layout.spec));
  for (const auto& [key, value] : keys) {
    layout.metadata[fmt::format("{}.{}", layout.architecture, std::string_view(key))] = value;
  }
  layout.sizes = SizesOf(layout.spec);
  GgufNames names;
  found.family.map(layout.spec, names);
  layout.weights = PlanTensors(layout.spec);
  Layouter layouter(layout);
  for (const GgufWanted& wanted : names.wanted) layouter.Add(wanted);
  RETURN_IF_ERROR(layouter.Finish());
  return layout;
}

}  // namespace braid
