// Who is admitted, and to which rank: all the blocks that it needs, or nothing. Engine thread.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler_state.h"

namespace braid {
namespace {

// How many more sequences than the least loaded rank a rank with the prefix may have, as a share of
// its slots.
constexpr int32_t kSkewDivisor = 4;

}  // namespace

bool Scheduler::State::Quiet() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const Rank& r) { return r.running.empty(); });
}

int64_t Scheduler::State::CacheVersion() const {
  int64_t version = 0;
  for (const Rank& rank : ranks) version += rank.cache.version();
  return version;
}

// Blocks for all known tokens and one block of output, or for everything after many preemptions.
BlockCounts Scheduler::State::AdmissionDemand(const Sequence& s) const {
  const bool whole = s.preemptions >= config.preemptions_max;
  const int32_t tokens =
      whole ? s.stored_max : std::min(s.known_tokens() + kBlockTokens, s.stored_max);
  BlockCounts demand = BlocksOfSequence(config.cache, tokens);
  for (size_t g = 0; g < config.cache.groups.size(); ++g) {
    if (config.cache.groups[g].kind == GroupKind::kState) {
      demand.by_group[g] = StateBlocksPrefill(s.stored_max);
    }
  }
  return demand;
}

// What a rank has stored of the sequence's tokens. One that was preempted often keeps all it has to
// itself.
PrefixMatch Scheduler::State::FindPrefix(Sequence& s, int32_t rank) const {
  if (!MayReuse(s)) return {};
  const PrefixCache& cache = ranks[static_cast<size_t>(rank)].cache;
  PrefixMatch match = cache.Match({s.request.tenant, s.request.cache_salt, rank}, s.tokens(),
                                  s.reuse_limit(), s.keys);
  if (s.wants_prompt_logprobs && match.stop == ReuseStop::kComplete) match.stop = ReuseStop::kOff;
  return match;
}

// All the blocks that the admission needs, or none.
bool Scheduler::State::TakeBlocks(Sequence& s, Rank& rank, PrefixMatch match) {
  s.reuses = MayReuse(s);
  const auto take = [&] {
    const PrefixSpace space{s.request.tenant, s.request.cache_salt, s.dp_rank};
    if (s.reuses) s.blocks.Enter(space, match, rank.cache);
    if (s.blocks.Reserve(AdmissionDemand(s), rank.cache)) return true;
    s.blocks.ReleaseAll(rank.cache);
    return false;
  };
  if (!take()) {
    // What is reused stays where it is, in pages that other groups then cannot have, and the
    // state that it goes on from comes on top of the sequence's own. Without it a sequence that has
    // the rank to itself always fits; with it, it could wait for ever.
    if (match.nodes.empty() || !rank.running.empty()) return false;
    match = {.stop = ReuseStop::kEvicted, .evicted_epoch = epochs, .nodes = {}};
    if (!take()) return false;
  }
  if (s.reuses) s.blocks.Stamp(match, ++epochs, rank.cache);
  CHECK(s.planned == 0 && s.unresolved == 0 && s.rows_in_flight == 0);
  s.planned = match.tokens;
  s.branch_at = match.known > match.tokens ? match.known : 0;
  s.prefill_end = s.known_tokens();
  if (std::exchange(s.ever_admitted, true)) return true;
  s.reuse = {.tokens = match.tokens, .known = match.known, .stop = match.stop};
  prompt_tokens += s.prompt_tokens();
  reused_tokens += match.tokens;
  ++reuse_stops[static_cast<size_t>(match.stop)];
  // Without a snapshot the tokens up to `known` are lost; those after it nobody had.
  const bool snapshot = match.stop == ReuseStop::kNoSnapshot;
  const int32_t end = snapshot ? match.known : s.prompt_tokens();
  lost_tokens[static_cast<size_t>(match.stop)] += end - match.tokens;
  lost_tokens[static_cast<size_t>(ReuseStop::kNeverSeen)] += s.prompt_tokens() - end;
  return true;
}

// The ranks to try, best first.
std::vector<int32_t> Scheduler::State::Placements(Sequence& s) const {
  const auto count = static_cast<int32_t>(ranks.size());
  std::vector<int32_t> order(ranks.size());
  for (int32_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
  if (count == 1) return order;
  if (config.placement == Placement::kRoundRobin) {
    std::rotate(order.begin(), order.begin() + next_rank, order.end());
    return order;
  }
  const auto load = [&](int32_t r) {
    return static_cast<int32_t>(ranks[static_cast<size_t>(r)].running.size());
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return load(a) < load(b); });
  if (config.placement == Placement::kLeastLoaded) return order;
  const int32_t skew_max = std::max(config.running_max / kSkewDivisor, 1);
  const int32_t least = load(order.front());
  std::stable_partition(order.begin(), order.end(), [&](int32_t r) {
    if (load(r) - least > skew_max) return false;
    const int32_t stored = FindPrefix(s, r).tokens;
    const Leader leader = FindLeader(s, ranks[static_cast<size_t>(r)], stored);
    return 2 * std::max(stored, leader.tokens) > s.known_tokens();
  });
  return order;
}

// Admits the sequence, or lets it follow one that runs there. False when there is no room.
bool Scheduler::State::AdmitTo(Sequence& s, int32_t r) {
  Rank& rank = ranks[static_cast<size_t>(r)];
  if (rank.closed) return false;
  PrefixMatch match = FindPrefix(s, r);
  if (FollowAnyone(s, rank, match.tokens)) return true;
  if (!rank.HasSlot()) return false;
  CHECK(!rank.starving.valid(), "request {} is admitted before request {}, which found no blocks",
        s.id.value, rank.starving.value);
  s.dp_rank = r;
  if (!TakeBlocks(s, rank, std::move(match))) {
    s.dp_rank = -1;
    return false;
  }
  queue.Admitted(s);
  queue.Erase(s);
  // For what is to be computed at once; ReleaseBlocks adds what came on top.
  const int32_t charge = s.known_tokens() - s.planned;
  queue.Charge(s, charge);
  s.computed = -charge;
  s.waiting = false;
  s.slot = SlotId(r * config.running_max + rank.free_slots.Lowest());
  rank.free_slots.Erase(s.slot.value % config.running_max);
  next_rank = (r + 1) % config.dp_ranks;
  s.receives ? Move(s.phase, PagesAwaited{}) : Move(s.phase, braid::Admitted{});
  s.output.reserve(static_cast<size_t>(std::min(s.length_max - s.prompt_tokens(), 4096)));
  rank.running.insert(std::upper_bound(rank.running.begin(), rank.running.end(), &s, ByPriority{}),
                      &s);
  if (s.receives) PlanTransfer(s, true);
  return true;
}

// Admits the first of all that wait, or closes what it waits for. False when nobody is left whom
// somebody could take.
bool Scheduler::State::AdmitFirst() {
  Sequence* first = queue.First(-1);
  for (int32_t r = 0; r < config.dp_ranks; ++r) {
    Sequence* own = ranks[static_cast<size_t>(r)].closed ? nullptr : queue.First(r);
    if (own != nullptr && (first == nullptr || queue.Before(*own, *first))) first = own;
  }
  if (first == nullptr) return false;
  Sequence& s = *first;
  if (const int32_t r = s.request.dp_rank; r >= 0) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    const bool known = rank.blocked == s.id && rank.blocked_at == rank.cache.version();
    if (!known && AdmitTo(s, r)) return true;
    rank.blocked = rank.HasSlot() ? s.id : RequestId();
    rank.blocked_at = rank.cache.version();
    rank.closed = true;
    return true;
  }
  if (blocked == s.id && blocked_at == CacheVersion()) return false;
  for (const int32_t r : Placements(s)) {
    if (AdmitTo(s, r)) return true;
  }
  blocked = RequestId();
  const bool all_open = std::all_of(ranks.begin(), ranks.end(),
                                    [](const Rank& r) { return !r.closed && r.HasSlot(); });
  if (all_open) {
    blocked = s.id;
    blocked_at = CacheVersion();
  }
  return false;
}

void Scheduler::State::Admit() {
  bool open = false;
  for (Rank& rank : ranks) {
    // The room that was made is not for newcomers.
    rank.closed = rank.preempted || rank.draining > 0 || rank.starving.valid();
    open |= !rank.closed && !rank.free_slots.empty();
  }
  while (open && !queue.empty() && AdmitFirst()) {
  }
}

}  // namespace braid
