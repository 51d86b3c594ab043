// Visits the weights of a spec.
#include "model/writing/model_tensors.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "model/writing/random_weights.h"

namespace braid {

const std::vector<Piece>& PiecesOf(const WeightSpec& weight, ExpertTensors experts) {
  const auto single = [](const std::vector<Piece>& pieces) {
    return std::ranges::all_of(pieces, [](const Piece& piece) { return piece.shape.size() < 3; });
  };
  if (experts == ExpertTensors::kSingle && weight.use == WeightUse::kMatrix) {
    const auto at = std::ranges::find_if(weight.sources, single);
    if (at != weight.sources.end()) return *at;
  }
  return weight.sources.front();
}

std::string NameOfPiece(const Piece& piece, const ModelSpec& spec) {
  if (!piece.tensor.starts_with('@')) return piece.tensor;
  return spec.prefixes.back() + piece.tensor.substr(1);
}

std::vector<TensorPlan> PlanTensors(const ModelSpec& spec, ExpertTensors experts) {
  std::vector<TensorPlan> plans;
  std::unordered_set<std::string> seen;
  const auto add = [&](const WeightSpec& weight) {
    for (const Piece& piece : PiecesOf(weight, experts)) {
      TensorPlan plan{.name = NameOfPiece(piece, spec), .shape = piece.shape};
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

}  // namespace braid
