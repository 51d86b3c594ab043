// The subjects of the equality table that several ranks compute. Lists; any thread.
#pragma once

#include <vector>

#include "tests/equality/table.h"

namespace braid {

// Every model on the first of some meshes that divides it, in the arithmetic that rounds products'
// operands: what a rank rounds otherwise than the whole is seen there.
std::vector<Subject> Divided();

// Groups with requests of their own, whose experts are divided among all of them or not.
std::vector<Subject> Grouped();

// The trained model in every arithmetic and format.
std::vector<Subject> TrainedAndDivided();

// One group, and groups whose ranks have different tokens, with as many replicas as divide some
// model.
inline constexpr Mesh kPlacedMeshes[] = {{.tp = 2, .ep = 2},
                                         {.dp = 3, .ep = 3, .redundant = 5},
                                         {.dp = 2, .tp = 2, .ep = 4, .redundant = 32},
                                         {.dp = 3, .ep = 3, .redundant = 1},
                                         {.dp = 2, .tp = 2, .ep = 4, .redundant = 4}};

// Experts in drawn slots: each model with experts on two meshes that divide it, with experts that
// stay on one and move all the time on the other. And the trained model in every format, with
// experts that move.
std::vector<Subject> Placed();

// Heads that ranks divide: of one group, of groups that need each other's experts, of both; where
// experts move.
std::vector<Subject> HeadedRanks();

}  // namespace braid
