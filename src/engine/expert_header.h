// What a record of experts' loads says of its model.
#pragma once

#include <string>

#include "experts/recorder.h"
#include "model/spec.h"

namespace braid {

// No layers: the model has no experts.
ExpertLoads LoadsHeaderOf(const ModelSpec& spec, const std::string& model_dir);

}  // namespace braid
