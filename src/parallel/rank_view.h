// What one rank of a mesh holds of a model and computes. The view is derived from the spec before
// anything is loaded; one rank alone is the view that holds everything. A weight says what it is
// divided by (ShardUnit), and a view holds whole units, so no head or expert is ever cut. Pure; any
// thread.
#pragma once

#include <vector>

#include "base/result.h"
#include "experts/expert_map.h"
#include "model/spec.h"
#include "parallel/mesh.h"

namespace braid {

struct RankView {
  Mesh mesh;
  int32_t rank = 0;
  // The rank's own heads, norm groups and channels of feed-forwards, as a model of its own: cache
  // and forward pass derive from it. Hidden channels, vocabulary and experts are the whole model's.
  ModelSpec spec;
  // Of the experts of each layer of the model; where it says nothing, they are in order (InOrder).
  std::vector<LayerSlots> placement = {};

  Share tensor() const { return mesh.TensorShare(rank); }
  Share experts() const { return mesh.ExpertShare(rank); }
  // The slots of all ranks that share the experts of a layer, -1: of a draft head.
  LayerSlots SlotsOf(int32_t layer, int64_t experts) const;
  // The rows of a weight of the whole model (WeightsOf) that the rank holds, ascending but for
  // experts, which come in the order of slots. Rows of a stacked weight are counted through all its
  // matrices.
  std::vector<RowRange> RowsOf(const WeightSpec& weight) const;
};

// CheckMesh's error if the mesh cannot divide the model. 0 <= rank < mesh.ranks(). The placement is
// one of the mesh and the model (CheckSlots).
Result<RankView> ViewOf(const ModelSpec& spec, const Mesh& mesh, int32_t rank,
                        std::vector<LayerSlots> placement = {});

}  // namespace braid
