// What a mesh must divide. A kind of mixer or feed-forward that says nothing here does not compile.
#include "parallel/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <variant>
#include <vector>

namespace braid {
namespace {

enum class Rule : uint8_t {
  kDivides,  // ranks have equally many units
  kShared,   // or several ranks have the same one
  kAtLeast,  // every rank has a unit
};

// `units` of the model that tp (or, of experts, ep) ranks divide.
struct Demand {
  std::string_view units;
  int64_t count = 0;
  Rule rule = Rule::kDivides;
  bool experts = false;

  auto operator<=>(const Demand&) const = default;
  bool Holds(const Mesh& mesh) const {
    if (experts) return (count + mesh.redundant) % mesh.ep == 0;
    const int64_t ranks = mesh.tp;
    if (rule == Rule::kAtLeast) return count >= ranks;
    return count % ranks == 0 || (rule == Rule::kShared && ranks % count == 0);
  }
};
using Demands = std::set<Demand>;

void Add(const FullAttention& m, Demands& demands) {
  demands.insert({"attention heads", m.heads});
  demands.insert({"heads of keys and values", m.kv_heads, Rule::kShared});
}
void Add(const LatentAttention& m, Demands& demands) {
  demands.insert({"heads of latent attention", m.heads});
}
void Add(const LinearAttention& m, Demands& demands) {
  demands.insert({"value heads of linear attention", m.value_heads});
  demands.insert({"key heads of linear attention", m.key_heads, Rule::kShared});
  if (m.norm_groups > 0) demands.insert({"groups of the output norm", m.norm_groups});
}
void Add(const DenseFfn& f, Demands& demands) {
  demands.insert({"channels of the feed-forward", f.width, Rule::kAtLeast});
}
void Add(const MoeFfn& f, Demands& demands) {
  demands.insert({"experts", f.experts, Rule::kDivides, true});
  if (f.shared_width > 0) {
    demands.insert({"channels of the shared expert", f.shared_width, Rule::kAtLeast});
  }
}

Demands DemandsOf(const ModelSpec& spec) {
  Demands demands = {{"hidden channels", spec.hidden, Rule::kAtLeast},
                     {"tokens of the vocabulary", spec.vocabulary, Rule::kAtLeast}};
  auto add = [&](const std::vector<LayerSpec>& layers) {
    for (const LayerSpec& layer : layers) {
      std::visit([&](const auto& kind) { Add(kind, demands); }, layer.mixer);
      std::visit([&](const auto& kind) { Add(kind, demands); }, layer.ffn);
    }
  };
  add(spec.layers);
  if (spec.draft) add(spec.draft->layers);
  return demands;
}

bool HasExperts(const Demands& demands) {
  return std::ranges::any_of(demands, [](const Demand& demand) { return demand.experts; });
}

std::vector<std::string> Problems(const Demands& demands, const Mesh& mesh) {
  std::vector<std::string> problems;
  for (const Demand& demand : demands) {
    if (demand.Holds(mesh)) continue;
    const std::string ranks =
        demand.experts ? fmt::format("ep {}", mesh.ep) : fmt::format("tp {}", mesh.tp);
    constexpr const char* kWhy[] = {"does not divide", "neither divides nor is a multiple of",
                                    "is more than"};
    const std::string more = demand.experts && mesh.redundant > 0
                                 ? fmt::format(" and {} redundant ones", mesh.redundant)
                                 : std::string();
    problems.push_back(fmt::format("{} {} the {} {}{}", ranks, kWhy[static_cast<int>(demand.rule)],
                                   demand.count, demand.units, more));
  }
  if (mesh.ranks() % mesh.ep != 0) {
    problems.push_back(fmt::format("ep {} does not divide the {} ranks of dp {} x tp {}", mesh.ep,
                                   mesh.ranks(), mesh.dp, mesh.tp));
  }
  if (mesh.redundant < 0 || mesh.redundant > kRedundantExpertsMax ||
      (mesh.redundant > 0 && mesh.ep == 1)) {
    problems.push_back(fmt::format("{} redundant experts; several ranks (ep) can hold 0 to {}",
                                   mesh.redundant, kRedundantExpertsMax));
  }
  if (mesh.ep > 1 && !HasExperts(demands)) {
    problems.push_back(fmt::format("ep {} divides experts, and the model has none", mesh.ep));
  }
  return problems;
}

// The number nearest to `wanted` from 1 to twice it for which `holds`; of two the smaller. 1 where
// there is none.
template <class F>
int32_t Nearest(int32_t wanted, F holds) {
  for (int32_t distance = 0; distance < wanted; ++distance) {
    if (holds(wanted - distance)) return wanted - distance;
    if (holds(wanted + distance)) return wanted + distance;
  }
  return 1;
}

// With the same dp.
Mesh NearestMesh(const Demands& demands, Mesh mesh) {
  mesh.tp = Nearest(mesh.tp, [&](int32_t tp) {
    return Problems(demands, {.dp = mesh.dp, .tp = tp, .ep = 1}).empty();
  });
  mesh.ep = Nearest(mesh.ep, [&](int32_t ep) {
    Mesh with = mesh;
    with.ep = ep;
    return Problems(demands, with).empty();
  });
  return mesh;
}

}  // namespace

std::string MeshText(const Mesh& mesh) {
  return fmt::format("dp {} x tp {} x ep {}", mesh.dp, mesh.tp, mesh.ep);
}

Status CheckMesh(const ModelSpec& spec, const Mesh& mesh) {
  constexpr int32_t kRanksMax = 4096;
  const auto in_range = [](int32_t ranks) { return ranks >= 1 && ranks <= kRanksMax; };
  if (!in_range(mesh.dp) || !in_range(mesh.tp) || !in_range(mesh.ep)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: each must be from 1 to {}", MeshText(mesh), kRanksMax)};
  }
  const Demands demands = DemandsOf(spec);
  const std::vector<std::string> problems = Problems(demands, mesh);
  if (problems.empty()) return {};
  std::string what = fmt::format("{}: {}", MeshText(mesh), fmt::join(problems, "; "));
  const Mesh nearest = NearestMesh(demands, mesh);
  if (Problems(demands, nearest).empty()) {
    what += fmt::format("; the nearest that would do is {}", MeshText(nearest));
  }
  return Error{ErrorCode::kInvalid, std::move(what)};
}

}  // namespace braid
