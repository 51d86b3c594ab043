// What engines do with stored prefixes besides using them, as the options ask for it: a tier below
// the arena, events for gateways. The thread that assembles the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine_options.h"
#include "engine/fingerprint.h"
#include "kv_events/publisher.h"
#include "model/loading/memory_plan.h"
#include "tiers/rank_tiers.h"

namespace braid {

// Opens --cache-dir and --cache-host, if there is either (null: none), before the weights are read,
// so that a bad directory fails at once. `here`: the ranks of this process.
Result<std::unique_ptr<RankTiers>> OpenTier(const EngineOptions& options,
                                            const FingerprintParts& parts,
                                            const std::vector<int32_t>& here);

// The part of --cache-host that lies on this machine, where so many of the ranks are.
int64_t HostBytesHere(const EngineOptions& options, int32_t ranks_here);

// Whether the machine has what --cache-host and --cache-host-node ask for. `ranks_here`: of this
// machine. `root` holds sys/ and proc/.
Status CheckHostMemory(const EngineOptions& options, int32_t ranks_here,
                       const std::string& root = "/");

// Of the host's memory, for copies of pages that partners exchange; 0: they are read where they
// are.
int64_t StagingBytesOf(const EngineOptions& options, const ModelSpec& spec, DType kv_dtype,
                       bool on_device);

// Whether --memory has room for so many.
Status CheckStaging(const EngineOptions& options, int64_t staging_bytes);

// The lines that are printed at start.
std::string StagingText(int64_t bytes);
std::string TierText(const RankTiers& tier, const EngineOptions& options);

// Who publishes what is stored, if somebody is to (null: nobody). The first rank knows the prefixes
// of all.
Result<std::unique_ptr<kv::Publisher>> OpenEvents(const EngineOptions& options, int32_t rank);

// Memory, and how many conversations the cache holds, for /server_info.
json::object MemoryObject(const MemoryPlan& memory);

}  // namespace braid
