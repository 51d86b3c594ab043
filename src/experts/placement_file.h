// A placement of experts as a file: one JSON object,
//   {"braid_expert_placement": 1, "model": "...", "experts": 256, "ranks": 8, "ranks_per_node": 4,
//    "redundant": 32, "layers": [3, 4, ...], "slots": [[17, 3, ...], ...]}
// with, for each of the layers, the expert that each slot holds, rank by rank. `braid experts plan
// --write` makes it, `--expert-placement` reads it. Pure but for the files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "experts/expert_map.h"

namespace braid {

inline constexpr int64_t kExpertPlacementVersion = 1;

struct ExpertPlacement {
  std::string model;
  ExpertShape shape;
  std::vector<int32_t> layers;    // of the model: those with experts, ascending
  std::vector<LayerSlots> slots;  // of each of them
  bool operator==(const ExpertPlacement&) const = default;

  // By layer of the model; layers without experts have none.
  std::vector<LayerSlots> ByLayer() const;
};

// The error names the source, the field and what it must be.
Result<ExpertPlacement> ParseExpertPlacement(std::string_view text, std::string_view source);
Result<ExpertPlacement> ReadExpertPlacement(const std::string& path);
Status WriteExpertPlacement(const std::string& path, const ExpertPlacement& placement);

}  // namespace braid
