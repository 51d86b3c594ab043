// Narrows a binding to some rows of every weight, as one of several ranks holds them. Loading then
// reads and packs only those; codes of the checkpoint stay codes, in the format that the whole
// weight has.
#pragma once

#include <functional>
#include <vector>

#include "model/loading/weight_binding.h"

namespace braid {

// Ascending ranges of a weight's count * n rows. Of a stacked weight: whole matrices, or equally
// many rows of each.
using HeldRows = std::function<std::vector<RowRange>(const WeightSpec&)>;

// Changes the weights' specs, runs and layouts and the report. The weights that remain name no
// units: they are divided.
void KeepRows(const HeldRows& held, Binding& binding);

}  // namespace braid
