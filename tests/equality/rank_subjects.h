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

// Experts in drawn slots, with as many replicas as divide: each model with experts, on a mesh of
// one group and on groups whose ranks have different tokens, once with experts that stay and once
// with experts that move all the time.
std::vector<Subject> Placed();

// Heads that ranks divide: of one group, of groups that need each other's experts, of both; where
// experts move.
std::vector<Subject> HeadedRanks();

}  // namespace braid
