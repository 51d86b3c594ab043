// See the header.
#include "engine/engine_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "base/check.h"
#include "experts/placement_file.h"

namespace braid {
namespace {

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
