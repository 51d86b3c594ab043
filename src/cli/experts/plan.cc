// `braid experts plan`: what placements of experts are worth for a recorded load, on any meshes.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/system/file.h"
#include "cli/command/command_factories.h"
#include "cli/command/pairs.h"
#include "cli/experts/svg.h"
#include "experts/placement_file.h"
#include "forecast/expert_plan.h"
#include "forecast/forecast.h"
#include "model/families/families.h"

namespace braid {
namespace {

struct MeshReports {
  ExpertShape shape;
  std::vector<PlacementReport> reports;
};

class ExpertsPlanCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required(
        "LOADS", loads_path_,
        "Recorded loads: JSON lines of --expert-loads; or zipf=S: drawn by Zipf's law of "
        "exponent S for the experts of --model");
    flags.Text("--mesh", mesh_text_,
               "ranks=N,node=N,redundant=N: ranks that share the experts, ranks of a node, further "
               "replicas (default: the fewest that divide); several meshes with ; between them");
    flags.Number("--known", options_.known, {0.01, 0.99},
                 "Part of the windows that placements see; the rest judges them");
    flags.Number("--wanted-balance", options_.wanted, {0.01, 1},
                 "Mean over fullest rank at which the incremental placement is content");
    flags.Number("--groups", groups_, {0, 1 << 16},
                 "Groups of experts, for the hierarchical placement (default: the model's)");
    flags.Seed("--seed", seed_, "Seed of the choice among replicas (default: 42)");
    flags.Text("--model", model_, "Directory with a config.json, or the file: for bytes and times");
    flags.Text("--hardware", hardware_name_, "With --model: as for braid plan");
    flags.Choice("--weights", weights_, {"bf16", "fp8", "int8", "int4", "fp32"},
                 "With --model: format of the weights");
    flags.Number("--step-tokens", step_tokens_, {1, 1 << 24},
                 "With --model: tokens of all ranks in a step");
    flags.Text("--write", write_,
               "Write the placement that all windows give to FILE, for --expert-placement");
    flags.Choice("--placement", placement_, {"incremental", "global", "hierarchical"},
                 "With --write: which");
    flags.Text("--svg", svg_,
               "Draw to FILE what each rank computes of each layer, and the balance as the load "
               "goes on, on the first --mesh");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override;

 private:
  Result<std::vector<ExpertShape>> ReadMeshes(int32_t experts) const;
  Status WritePlacement(const ExpertLoads& loads, const ExpertShape& shape) const;
  void Print(const ExpertLoads& loads, std::span<const MeshReports> all) const;
  void PrintJson(const ExpertLoads& loads, std::span<const MeshReports> all) const;

  std::string loads_path_, mesh_text_ = "ranks=8,node=8", model_, hardware_name_ = "h200";
  std::string weights_ = "bf16", svg_, write_, placement_ = "incremental";
  int32_t groups_ = 0, step_tokens_ = 4096;
  std::optional<uint64_t> seed_;
  bool json_ = false;
  ExpertPlanOptions options_;
};

Result<std::vector<ExpertShape>> ExpertsPlanCommand::ReadMeshes(int32_t experts) const {
  std::vector<ExpertShape> shapes;
  for (std::string_view rest = mesh_text_; !rest.empty();) {
    const std::string_view text = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    int64_t ranks = 1, node = 1, redundant = -1;
    RETURN_IF_ERROR(ReadPairs("--mesh", text,
                              {{"ranks", &ranks}, {"node", &node}, {"redundant", &redundant, 0}}));
    if (ranks > (1 << 16)) {
      return Error{ErrorCode::kInvalid, "--mesh: at most 65536 ranks", "--mesh"};
    }
    if (redundant < 0) redundant = (ranks - experts % ranks) % ranks;
    ExpertShape shape{.experts = experts,
                      .redundant = static_cast<int32_t>(redundant),
                      .ranks = static_cast<int32_t>(ranks),
                      .ranks_per_node = static_cast<int32_t>(std::min(node, ranks))};
    RETURN_IF_ERROR(CheckShape(shape));
    shapes.push_back(shape);
  }
  if (shapes.empty()) return Error{ErrorCode::kInvalid, "--mesh names no mesh", "--mesh"};
  return shapes;
}

void ExpertsPlanCommand::Print(const ExpertLoads& loads, std::span<const MeshReports> all) const {
  fmt::print("{} layers of {} experts, {} a token; {} windows, the first {:.0f} % known\n",
             loads.layers.size(), loads.experts, loads.top_k, loads.windows.size(),
             options_.known * 100);
  fmt::print("balance: mean over fullest rank, of windows that the placement has not seen\n");
  for (const MeshReports& mesh : all) {
    fmt::print("\n{} ranks in {} nodes, {} redundant experts, {} slots a rank\n", mesh.shape.ranks,
               mesh.shape.nodes(), mesh.shape.redundant, mesh.shape.slots_per_rank());
    fmt::print("  {:<14}{:>8}{:>10}{:>9}{:>10}{:>9}{:>13}{:>12}{:>13}\n", "", "known", "held out",
               "chosen", "received", "online", "received", "GB", "experts/step");
    for (const PlacementReport& r : mesh.reports) {
      fmt::print("  {:<14}{:>8.3f}{:>10.3f}{:>9.3f}{:>10}{:>9.3f}{:>13.1f}{:>12}{:>13}\n",
                 NameOf(r.method), r.balance_known, r.balance_held_out, r.balance_chosen,
                 r.received, r.balance_online, r.received_online,
                 r.received_bytes ? fmt::format("{:.2f}", *r.received_bytes / 1e9) : "-",
                 r.expert_seconds ? fmt::format("{:.3f} ms", *r.expert_seconds * 1e3) : "-");
    }
  }
}

void ExpertsPlanCommand::PrintJson(const ExpertLoads& loads,
                                   std::span<const MeshReports> all) const {
  json::array meshes;
  for (const MeshReports& mesh : all) {
    json::array rows;
    for (const PlacementReport& r : mesh.reports) {
      json::object row{{"placement", NameOf(r.method)},
                       {"balance_known", r.balance_known},
                       {"balance_held_out", r.balance_held_out},
                       {"balance_chosen", r.balance_chosen},
                       {"received_experts", r.received},
                       {"balance_online", r.balance_online},
                       {"received_experts_online", r.received_online}};
      if (r.received_bytes) row["received_bytes"] = *r.received_bytes;
      if (r.expert_seconds) row["expert_seconds_per_step"] = *r.expert_seconds;
      rows.push_back(std::move(row));
    }
    meshes.push_back({{"ranks", mesh.shape.ranks},
                      {"ranks_per_node", mesh.shape.ranks_per_node},
                      {"redundant_experts", mesh.shape.redundant},
                      {"placements", std::move(rows)}});
  }
  const json::object out{{"experts", loads.experts},
                         {"top_k", loads.top_k},
                         {"windows", loads.windows.size()},
                         {"meshes", std::move(meshes)}};
  fmt::print("{}\n", json::serialize(out));
}

Status ExpertsPlanCommand::WritePlacement(const ExpertLoads& loads,
                                          const ExpertShape& shape) const {
  using enum PlacementMethod;
  PlacementMethod method = kIncremental;
  for (const PlacementMethod other : {kGlobal, kHierarchical}) {
    if (NameOf(other) == placement_) method = other;
  }
  ExpertPlacement placement{.model = loads.model, .shape = shape, .layers = loads.layers};
  ASSIGN_OR_RETURN(placement.slots, PlaceBy(method, loads, shape, options_));
  return WriteExpertPlacement(write_, placement);
}

Status ExpertsPlanCommand::Run() {
  ASSIGN_OR_RETURN(const Hardware hardware, ReadHardware(hardware_name_));
  ModelSpec spec;
  if (!model_.empty()) {
    ASSIGN_OR_RETURN(spec, ReadModelConfig(model_));
  }
  options_.seed = seed_.value_or(kReplicaSeed);
  if (model_.empty() && loads_path_.starts_with("zipf=")) {
    return Error{ErrorCode::kInvalid, "zipf=S draws loads for the experts of a --model", "--model"};
  }
  ASSIGN_OR_RETURN(const ExpertLoads loads, LoadsOf(loads_path_, spec, options_.seed));
  ASSIGN_OR_RETURN(const std::vector<ExpertShape> shapes, ReadMeshes(loads.experts));
  options_.groups = groups_;
  for (const LayerSpec& layer : spec.layers) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe != nullptr && groups_ == 0) options_.groups = moe->router.groups;
  }
  options_.step_tokens = step_tokens_;
  const ExpertMachine machine{spec, hardware,
                              ops::FindWeightFormat(weights_).value_or(ops::WeightFormat::kBF16)};
  if (!write_.empty()) {
    if (shapes.size() > 1) {
      return Error{ErrorCode::kInvalid, "--write needs a single --mesh", "--write"};
    }
    RETURN_IF_ERROR(WritePlacement(loads, shapes[0]));
    if (loads.windows.size() < 2) return {};  // nothing judges the placement
  }
  std::vector<MeshReports> all;
  for (const ExpertShape& shape : shapes) {
    ASSIGN_OR_RETURN(
        std::vector<PlacementReport> reports,
        ComparePlacements(loads, shape, options_, model_.empty() ? nullptr : &machine));
    all.push_back({shape, std::move(reports)});
  }
  if (!svg_.empty()) {
    RETURN_IF_ERROR(WriteFile(svg_, ExpertsSvg(loads, all[0].shape, all[0].reports)));
  }
  json_ ? PrintJson(loads, all) : Print(loads, all);
  return {};
}

}  // namespace

CommandPointer MakeExpertsPlanCommand() { return std::make_unique<ExpertsPlanCommand>(); }

}  // namespace braid
