// The tier below the arena, as an engine's options ask for it. The thread that assembles the
// engine.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_options.h"
#include "engine/fingerprint.h"
#include "tiers/rank_tiers.h"

namespace braid {

// Opens --cache-dir, if there is one (null: none), before the weights are read, so that a bad
// directory fails at once. Ranks must be threads of this process.
Result<std::unique_ptr<RankTiers>> OpenTier(const EngineOptions& options,
                                            const FingerprintParts& parts);

// The line that is printed at start.
std::string TierText(const RankTiers& tier, const EngineOptions& options);

}  // namespace braid
