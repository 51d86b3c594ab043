// What placements of experts do to a load, as one SVG without scripts: a map of layers and ranks
// for each, coloured by what the rank computes, and the balance of each window as the load goes on.
#pragma once

#include <span>
#include <string>

#include "forecast/expert_plan.h"

namespace braid {

std::string ExpertsSvg(const ExpertLoads& loads, const ExpertShape& shape,
                       std::span<const PlacementReport> reports);

}  // namespace braid
