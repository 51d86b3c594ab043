// What each data-parallel rank has to itself: an arena, slots, and the sequences that hold them.
// Admission fills it, the life cycle empties it, step planning reads it. Engine thread.
#pragma once

#include <vector>

#include "base/ids.h"
#include "cache/id_set.h"
#include "cache/prefix_cache.h"
#include "scheduler/config.h"
#include "scheduler/life_cycle/sequence.h"

namespace braid {

struct DpRank {
  DpRank(const SchedulerConfig& config, const PageDirectory& tier)
      : cache(config.cache, config.tier ? &tier : nullptr), free_slots(config.running_max) {
    cache.RememberFreed(config.report_freed);
    if (config.report_prefixes) cache.RememberChanges();
    for (int32_t i = 0; i < config.running_max; ++i) free_slots.Insert(i);
  }

  PrefixCache cache;
  std::vector<Sequence*> running;  // ByPriority; prefilling, decoding, moving pages
  IdSet free_slots;                // counted from the rank's first
  int32_t draining = 0;            // preempted sequences with rows in flight
  bool preempted = false;          // somebody was, for the plan being made
  RequestId starving;              // found no blocks for its row; nobody is admitted before it does
};

using DpRanks = IdVector<DpRankId, DpRank>;

// The directory outlives the ranks.
inline DpRanks MakeRanks(const SchedulerConfig& config, const PageDirectory& tier) {
  DpRanks ranks;
  ranks.reserve(static_cast<size_t>(config.dp_ranks));
  for (int32_t r = 0; r < config.dp_ranks; ++r) ranks.emplace_back(config, tier);
  return ranks;
}

}  // namespace braid
