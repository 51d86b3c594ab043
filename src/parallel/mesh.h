// How ranks are arranged. A rank is one copy of the engine with its own memory: a process or a set
// of threads. dp groups of tp ranks each: the ranks of a group share every token's work, groups
// have requests of their own. The experts of a layer are divided among ep consecutive ranks,
// whatever their groups. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "experts/expert_map.h"
#include "model/spec.h"

namespace braid {

// Part `index` of `count` parts of something that is counted.
struct Share {
  int32_t index = 0;
  int32_t count = 1;

  // Of `total` units in order. Sizes differ by one at most; they are equal where count divides.
  RowRange Of(int64_t total) const {
    const int64_t begin = total * index / count;
    return {begin, total * (index + 1) / count - begin};
  }
  // Of `total` units that each of `count` ranks needs at least one of: several ranks hold the same
  // unit where there are fewer units than ranks. One of the two must divide the other.
  RowRange OfShared(int64_t total) const {
    return total >= count ? Of(total) : RowRange{total * index / count, 1};
  }
};

struct Mesh {
  int32_t dp = 1;
  int32_t tp = 1;
  int32_t ep = 1;
  int32_t redundant = 0;  // further slots for experts of a layer; ep divides experts and them

  auto operator<=>(const Mesh&) const = default;
  int32_t ranks() const { return dp * tp; }
  // Rank r is number r % tp of group r / tp.
  int32_t GroupOf(int32_t rank) const { return rank / tp; }
  Share TensorShare(int32_t rank) const { return {rank % tp, tp}; }
  Share ExpertShare(int32_t rank) const { return {rank % ep, ep}; }
  // Slots of the experts of a layer, on ranks of one node.
  ExpertShape SlotsOf(int64_t experts) const {
    return {static_cast<int32_t>(experts), redundant, ep, ep};
  }
};

// "dp 2 x tp 4 x ep 8".
std::string MeshText(const Mesh& mesh);

// Whether the ranks of the mesh can divide the model. The error names everything that does not
// divide, with numbers, and the nearest mesh that would do.
Status CheckMesh(const ModelSpec& spec, const Mesh& mesh);

}  // namespace braid
