// For tests: a model opened, bound and loaded in one call.
#pragma once

#include <string>
#include <utility>

#include "base/system/thread_pool.h"
#include "model/families/families.h"
#include "model/loading/load_weights.h"

namespace braid {

struct LoadedModel {
  OpenedModel opened;
  LoadReport report;
  ModelWeights weights;
};

inline Result<LoadedModel> LoadModel(const std::string& path, const WeightChoice& choice = {}) {
  ThreadPool pool(2);
  ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(path));
  ASSIGN_OR_RETURN(Binding binding, BindWeights(opened.spec, opened.checkpoint, choice));
  LoadReport report = binding.report;
  ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(std::move(binding), pool));
  return LoadedModel{std::move(opened), std::move(report), std::move(weights)};
}

// The weights of a layer's mixer or feed-forward of a known kind.
template <class Kind>
const typename Kind::Weights& MixerOf(const ModelWeights& weights, size_t layer) {
  return std::get<typename Kind::Weights>(weights.layers[layer].mixer);
}
template <class Kind>
const typename Kind::Weights& FfnOf(const ModelWeights& weights, size_t layer) {
  return std::get<typename Kind::Weights>(weights.layers[layer].ffn);
}

}  // namespace braid
