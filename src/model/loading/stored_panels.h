// Weights of a checkpoint whose matrices are panels already (checkpoint/formats/panels.cc): a
// tensor for every weight of the model, under the weight's own name. Such matrices are used where
// they lie in the file, mapped and shared between processes. Pure.
#pragma once

#include <string>

#include "model/loading/weight_binding.h"

namespace braid {

// The name of the weight's tensor: of a vector in full, of a matrix without ".FORMAT".
std::string PanelName(const WeightSpec& spec);
// Makes that tensor the weight's only source.
void SourceFromPanels(WeightSpec& spec);

// Whether the matrix runs in the format in which the file has its panels.
bool RunsAsStoredPanels(const BoundWeight& bound);
// The file's panel that has the rows of panel p of one matrix, and no others; null without one.
const std::byte* StoredPanel(const BoundWeight& bound, int64_t matrix, int64_t p);
// The first of all of the weight's panels if they follow each other in the file; else null.
const std::byte* MappedPanels(const BoundWeight& bound);

}  // namespace braid
