// Recounts who owns and pins what. Linear in the arena; for tests, and for production while idle.
#include <algorithm>
#include <map>

#include "scheduler/scheduler_state.h"

namespace braid {
namespace {

Error Wrong(std::string message) {
  return {ErrorCode::kInternal, "scheduler accounting: " + std::move(message), ""};
}

}  // namespace

// Every block in use is the index's or one sequence's, and is so once.
Status Scheduler::State::AuditBlocks(DpRankId rank) const {
  const PrefixCache& cache = ranks[rank].cache;
  for (size_t g = 0; g < config.cache.groups.size(); ++g) {
    const GroupId group(static_cast<int32_t>(g));
    std::vector<BlockId> owned;
    for (const auto& [id, s] : life_cycle.sequences()) {
      if (s->dp_rank == rank) s->blocks.AppendOwned(group, cache.index(), owned);
    }
    cache.index().ForEachPart([&](PrefixNodeId, GroupKind part, const PartBlocks& blocks, int32_t) {
      if (part == config.cache.groups[g].kind) owned.push_back(blocks.by_group[g]);
    });
    std::sort(owned.begin(), owned.end());
    const auto twice = std::adjacent_find(owned.begin(), owned.end());
    if (twice != owned.end()) {
      return Wrong(fmt::format("I-1: block {} of group {} has two owners", twice->value, g));
    }
    const int64_t used = cache.pool().blocks_used(group) + cache.pool().blocks_cached(group);
    if (static_cast<int64_t>(owned.size()) != used) {
      return Wrong(
          fmt::format("I-1: group {}: {} blocks are owned, {} are in use", g, owned.size(), used));
    }
  }
  return {};
}

Status Scheduler::State::AuditPins(DpRankId rank) const {
  const PrefixCache& cache = ranks[rank].cache;
  std::map<std::pair<PrefixNodeId, GroupKind>, int32_t> held;
  for (const auto& [id, s] : life_cycle.sequences()) {
    if (s->dp_rank != rank) continue;
    s->blocks.ForEachPin(cache.index(),
                         [&](PrefixNodeId node, GroupKind part) { ++held[{node, part}]; });
  }
  moves.ForEachPin(rank, [&](PrefixNodeId node, GroupKind part) { ++held[{node, part}]; });
  Status status;
  cache.index().ForEachPart(
      [&](PrefixNodeId node, GroupKind part, const PartBlocks&, int32_t pins) {
        const auto at = held.find({node, part});
        const int32_t found = at == held.end() ? 0 : at->second;
        if (found == pins) return;
        status =
            Wrong(fmt::format("I-2: node {} counts {} pins, {} are held", node.value, pins, found));
      });
  return status;
}

Status Scheduler::State::AuditSlots(DpRankId rank) const {
  const IdSet& free_slots = ranks[rank].free_slots;
  std::vector<SlotId> slots;
  for (const auto& [id, s] : life_cycle.sequences()) {
    if (s->slot.valid() && s->dp_rank == rank) slots.push_back(s->slot);
  }
  std::sort(slots.begin(), slots.end());
  if (std::adjacent_find(slots.begin(), slots.end()) != slots.end() ||
      static_cast<int32_t>(slots.size()) + free_slots.size() != config.running_max) {
    return Wrong(fmt::format("I-1: {} slots are held and {} free, of {}", slots.size(),
                             free_slots.size(), config.running_max));
  }
  return {};
}

// A follower waits for a sequence that runs, that may give it blocks, and that has yet to publish
// what is awaited.
Status Scheduler::State::AuditFollowers() const {
  size_t following = 0, followers = 0;
  for (const auto& [id, s] : life_cycle.sequences()) {
    followers += s->followers.size();
    const Sequence* leader = s->leader;
    if (leader == nullptr) continue;
    ++following;
    const bool runs = std::any_of(ranks.begin(), ranks.end(), [&](const DpRank& rank) {
      return std::find(rank.running.begin(), rank.running.end(), leader) != rank.running.end();
    });
    if (!runs || !s->waiting || !ByPriority{}(leader, s.get())) {
      return Wrong(fmt::format("I-21: request {} follows one that does not run ahead", id.value));
    }
    if (std::count(leader->followers.begin(), leader->followers.end(), s.get()) != 1 ||
        leader->request.tenant != s->request.tenant ||
        leader->request.cache_salt != s->request.cache_salt) {
      return Wrong(fmt::format("I-21: request {} follows a stranger", id.value));
    }
    const int32_t planned = std::min(leader->planned, leader->prefill_end);
    // Of two rows in flight the first may end where the follower goes on.
    const bool passed = HasState(config.cache) && leader->rows_in_flight < 2 &&
                        s->awaited < planned / kBlockTokens * kBlockTokens;
    if (s->awaited <= leader->blocks.published() || s->awaited > leader->prefill_end || passed) {
      return Wrong(
          fmt::format("I-21: request {} waits for {} tokens in vain", id.value, s->awaited));
    }
  }
  int32_t claims = 0;
  for (const DpRankId r : ranks.ids()) claims += admission.claims(r);
  if (following == followers && following == static_cast<size_t>(claims)) return {};
  return Wrong(fmt::format("I-21: {} requests follow, {} are followers, with {} slots", following,
                           followers, claims));
}

Status Scheduler::Audit() const {
  RETURN_IF_ERROR(state_->AuditFollowers());
  for (const DpRankId r : state_->ranks.ids()) {
    RETURN_IF_ERROR(state_->ranks[r].cache.Audit());
    RETURN_IF_ERROR(state_->AuditBlocks(r));
    RETURN_IF_ERROR(state_->AuditPins(r));
    RETURN_IF_ERROR(state_->AuditSlots(r));
  }
  return {};
}

}  // namespace braid
