// The flags that commands with an engine share, each group written into the options it belongs to.
// The model, a command's first positional argument, is not among them.
#pragma once

#include <string>

#include "cli/command/flags.h"
#include "engine/engine_options.h"
#include "engine/generate.h"
#include "scheduler/config.h"

namespace braid {

void AddEngineFlags(Flags& flags, EngineOptions& options);
// The scheduler's settings that these commands offer.
void AddSchedulerFlags(Flags& flags, Offered offered, SchedulerConfig& config);
// --weights and --quantize-head only; see WeightChoiceOf.
void AddWeightFlags(Flags& flags, std::string& weights, bool& head);
// --device, --experts only.
void AddPlaceFlags(Flags& flags, EngineOptions& options);
// --threads, --isa, --compute only.
void AddDeviceFlags(Flags& flags, EngineOptions& options);
void AddCacheTypeFlags(Flags& flags, EngineOptions& options);
void AddMlaFlag(Flags& flags, EngineOptions& options);
// --max-tokens, --temperature, --top-k, --top-p, --min-p, --seed.
void AddSamplingFlags(Flags& flags, SamplingChoice& choice);

}  // namespace braid
