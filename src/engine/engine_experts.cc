// See the header.
#include "engine/engine_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <variant>
#include <vector>

#include "base/check.h"
#include "engine/engine_ranks.h"
#include "experts/placement_file.h"

namespace braid {
namespace {

// No layers: the model has no experts. All expert layers of a model have as many; see the CHECK.
ExpertLoads LoadsHeaderOf(const ModelSpec& spec, const std::string& model_dir) {
  ExpertLoads header{.model = std::filesystem::path(model_dir).filename().string()};
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (moe == nullptr) continue;
    CHECK(header.layers.empty() || (moe->experts == header.experts && moe->top_k == header.top_k));
    header.layers.push_back(static_cast<int32_t>(i));
    header.experts = moe->experts;
    header.top_k = moe->top_k;
  }
  return header;
}

// The file is of the model and for the ranks of the mesh.
Status CheckPlacement(const ExpertPlacement& file, const ModelSpec& spec, const Mesh& mesh,
                      const std::string& path) {
  const auto wrong = [&](std::string what) {
    return Error{ErrorCode::kInvalid, path + ": " + what, "expert_placement"};
  };
  if (mesh.redundant > 0) {
    return wrong(
        "the file says how many redundant experts there are; leave out "
        "--redundant-experts");
  }
  if (file.shape.ranks != mesh.ep || mesh.ep == 1) {
    return wrong(
        fmt::format("it places experts on {} ranks, and {} has {} that share experts; "
                    "start with --ep {}",
                    file.shape.ranks, MeshText(mesh), mesh.ep, std::max(2, file.shape.ranks)));
  }
  std::vector<int32_t> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (moe == nullptr) continue;
    layers.push_back(static_cast<int32_t>(i));
    if (moe->experts != file.shape.experts) {
      return wrong(fmt::format("it places {} experts; layer {} of the model has {}",
                               file.shape.experts, i, moe->experts));
    }
  }
  if (layers == file.layers) return {};
  return wrong(fmt::format("it places experts of layers {}; the model has experts in layers {}",
                           fmt::join(file.layers, ", "), fmt::join(layers, ", ")));
}

}  // namespace

Result<std::unique_ptr<ExpertRecorder>> RecorderOf(const EngineOptions& options,
                                                   const ModelSpec& spec, bool on_device) {
  if (on_device) return std::unique_ptr<ExpertRecorder>();
  ExpertLoads header = LoadsHeaderOf(spec, options.model_dir);
  std::unique_ptr<ExpertRecorder> recorder;
  if (!header.layers.empty()) recorder = std::make_unique<ExpertRecorder>(std::move(header));
  if (options.expert_loads.empty()) {
    if (options.expert_loads_line == EngineOptions().expert_loads_line) return recorder;
    return Error{ErrorCode::kInvalid, "--expert-loads-line goes with --expert-loads FILE",
                 "expert_loads_line"};
  }
  if (recorder == nullptr) {
    return Error{ErrorCode::kInvalid,
                 options.model_dir + " has no experts; leave out --expert-loads", "expert_loads"};
  }
  const LoadDetail detail = options.expert_loads_line == "pass"    ? LoadDetail::kPasses
                            : options.expert_loads_line == "token" ? LoadDetail::kTokens
                                                                   : LoadDetail::kWindows;
  if (detail != LoadDetail::kWindows && options.mesh.ranks() > 1) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--expert-loads-line {}: several ranks count windows of whole tens of "
                             "steps together; record with one rank, or windows",
                             options.expert_loads_line),
                 "expert_loads_line"};
  }
  if (!FollowsAsRank()) RETURN_IF_ERROR(recorder->Open(options.expert_loads, detail));
  return recorder;
}

Result<int64_t> MoveBytesOf(const EngineOptions& options, const ModelSpec& spec,
                            const Binding& binding) {
  const auto wrong = [](std::string what) {
    return Error{ErrorCode::kInvalid, std::move(what), "balance_experts"};
  };
  if (!options.balance_experts) {
    const EngineOptions defaults;
    for (const auto& [flag, given] :
         {std::pair("--balance-every", options.balance.every_steps != defaults.balance.every_steps),
          {"--balance-below", options.balance.below != defaults.balance.below},
          {"--balance-step-bytes", options.balance_step_bytes != defaults.balance_step_bytes}}) {
      if (given) return wrong(fmt::format("{} has no effect without --balance-experts", flag));
    }
    return 0;
  }
  if (options.mesh.ep == 1) return wrong("one rank has all experts; start with --ep of at least 2");
  if (spec.quantization.panels()) {
    return wrong(options.model_dir +
                 " is a mapped checkpoint, whose experts stay in its file; load "
                 "the one that it was made from");
  }
  if (options.balance_step_bytes < (int64_t{64} << 10) ||
      options.balance_step_bytes > (int64_t{1} << 30)) {
    return wrong("--balance-step-bytes must be from 64K to 1G");
  }
  // An exchange that takes longer than the ranks wait for each other ends them.
  constexpr int64_t kSecondBytes = int64_t{32} << 20;
  if (options.balance_step_bytes > options.rank_seconds * kSecondBytes) {
    return wrong(
        fmt::format("--balance-step-bytes {} may take longer to send than --rank-seconds {}, after "
                    "which a rank is lost: choose at most 32M for each second, {}M",
                    options.balance_step_bytes, options.rank_seconds, 32 * options.rank_seconds));
  }
  std::map<int32_t, int64_t> layers;
  for (const BoundWeight& bound : binding.weights) {
    const bool experts = bound.spec.part == "experts" && bound.spec.layer >= 0;
    if (experts) layers[bound.spec.layer] += bound.weight->matrix.bytes();
  }
  int64_t most = 0;
  for (const auto& [layer, bytes] : layers) most = std::max(most, bytes);
  return most + 2 * options.balance_step_bytes;
}

std::unique_ptr<ExpertBalancer> BalancerOf(const EngineOptions& options, const ModelSpec& spec,
                                           const ExpertSlots& slots) {
  ExpertLoads header = LoadsHeaderOf(spec, options.model_dir);
  BalancedExperts experts{.shape = options.mesh.SlotsOf(header.experts),
                          .layers = std::move(header.layers),
                          .groups = options.mesh.ranks() / options.mesh.ep};
  experts.shape.ranks_per_node = slots.ranks_per_node;
  return std::make_unique<ExpertBalancer>(std::move(experts), options.balance);
}

Result<ExpertSlots> ExpertSlotsOf(const EngineOptions& options, const ModelSpec& spec, Mesh& mesh) {
  mesh.redundant = options.redundant_experts;
  ExpertSlots slots{.redundant = mesh.redundant, .ranks_per_node = 0, .placement = {}};
  if (options.expert_placement.empty()) return slots;
  ASSIGN_OR_RETURN(const ExpertPlacement file, ReadExpertPlacement(options.expert_placement));
  RETURN_IF_ERROR(CheckPlacement(file, spec, mesh, options.expert_placement));
  slots.redundant = mesh.redundant = file.shape.redundant;
  slots.ranks_per_node = file.shape.ranks_per_node;
  slots.placement = file.ByLayer();
  return slots;
}

}  // namespace braid
