// What an engine's options say about where its experts lie.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine_options.h"
#include "experts/recorder.h"
#include "model/loading/weight_binding.h"
#include "model/spec.h"
#include "runtime/experts/expert_balancer.h"
#include "runtime/experts/expert_slots.h"

namespace braid {

// Counts the experts that tokens choose; null: the model has none, or is on a device. The file of
// --expert-loads is created before the model is loaded, so that a bad path fails at once; of
// several ranks by the first one, which gets what the others count.
Result<std::unique_ptr<ExpertRecorder>> RecorderOf(const EngineOptions& options,
                                                   const ModelSpec& spec, bool on_device);

// Where --expert-placement and --redundant-experts say that experts lie; the mesh gets to know how
// many are redundant. kInvalid if the file is of another model or for other ranks.
Result<ExpertSlots> ExpertSlotsOf(const EngineOptions& options, const ModelSpec& spec, Mesh& mesh);

// What --balance-experts needs beside the cache, for a rank's part of the model; 0 without it.
// kInvalid if experts cannot move here.
Result<int64_t> MoveBytesOf(const EngineOptions& options, const ModelSpec& spec,
                            const Binding& binding);

// Who decides when experts move, on the first rank.
std::unique_ptr<ExpertBalancer> BalancerOf(const EngineOptions& options, const ModelSpec& spec,
                                           const ExpertSlots& slots);

}  // namespace braid
