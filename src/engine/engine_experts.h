// What an engine's options say about where its experts lie.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/engine_options.h"
#include "model/spec.h"
#include "runtime/experts/expert_slots.h"

namespace braid {

// Where --expert-placement and --redundant-experts say that experts lie; the mesh gets to know how
// many are redundant. kInvalid if the file is of another model or for other ranks.
Result<ExpertSlots> ExpertSlotsOf(const EngineOptions& options, const ModelSpec& spec, Mesh& mesh);

}  // namespace braid
