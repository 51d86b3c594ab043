// What engines do with stored prefixes besides using them, as the options ask for it: a tier below
// the arena, events for gateways. The thread that assembles the engine.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "engine/engine_options.h"
#include "engine/fingerprint.h"
#include "kv_events/publisher.h"
#include "model/loading/memory_plan.h"
#include "tiers/rank_tiers.h"

namespace braid {

// Opens --cache-dir, if there is one (null: none), before the weights are read, so that a bad
// directory fails at once. Ranks must be threads of this process.
Result<std::unique_ptr<RankTiers>> OpenTier(const EngineOptions& options,
                                            const FingerprintParts& parts);

// The line that is printed at start.
std::string TierText(const RankTiers& tier, const EngineOptions& options);

// Who publishes what is stored, if somebody is to (null: nobody). The first rank knows the prefixes
// of all.
Result<std::unique_ptr<kv::Publisher>> OpenEvents(const EngineOptions& options, int32_t rank);

// How many conversations the cache holds, for /server_info.
json::array CapacityObject(const MemoryPlan& memory);

}  // namespace braid
