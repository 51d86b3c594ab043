// Narrows a binding to some rows of every weight, as one of several ranks holds them. Loading then
// reads and packs only those; codes of the checkpoint stay codes, in the format that the whole
// weight has.
#pragma once

#include <functional>
#include <vector>

#include "model/loading/weight_binding.h"

namespace braid {

// Ranges of a weight's count * n rows: whole matrices in any order, several times too, or ascending
// ranges with equally many rows of each matrix.
using HeldRows = std::function<std::vector<RowRange>(const WeightSpec&)>;

// Changes the weights' specs, runs and layouts and the report. The weights that remain name no
// units: they are divided.
void KeepRows(const HeldRows& held, Binding& binding);

}  // namespace braid
