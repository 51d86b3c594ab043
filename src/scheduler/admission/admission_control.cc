// See the header.
#include "scheduler/admission/admission_control.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace braid {
namespace {

// How many more sequences than the least loaded rank a rank with the prefix may have, as a share of
// its slots.
constexpr int32_t kSkewDivisor = 4;

}  // namespace

AdmissionControl::AdmissionControl(const SchedulerConfig& config, DpRanks& ranks)
    : config_(config),
      ranks_(ranks),
      has_state_(HasState(config.cache)),
      queue_(config.dp_ranks),
      gates_(ranks.size()) {}

void AdmissionControl::Reset() {
  CHECK(queue_.empty());
  gates_ = IdVector<DpRankId, Gate>(ranks_.size());
  blocked_ = RequestId();
}

void AdmissionControl::Enqueue(Sequence& s) {
  s.waiting = true;
  queue_.Insert(s);
  if (s.ranks_unready == 0) return;
  queue_.SetAside(s);
  ++unready_;
}

void AdmissionControl::CountReady(Sequence& s) {
  if (--s.ranks_unready > 0) return;
  --unready_;
  queue_.PutBack(s);
}

void AdmissionControl::Withdraw(Sequence& s) {
  if (s.leader != nullptr) Unfollow(s);
  while (s.ranks_unready > 0) CountReady(s);
  queue_.Erase(s);
  EndAhead(s);
  s.waiting = false;
}

void AdmissionControl::ChargeComputed(Sequence& s) {
  const int64_t more = std::max<int64_t>(s.computed, 0);
  queue_.Charge(s, more);
  s.computed -= more;
}

int64_t AdmissionControl::CacheVersion() const {
  int64_t version = 0;
  for (const DpRank& rank : ranks_) version += rank.cache.version();
  return version;
}

// Blocks for all known tokens and one block of output, or for everything after many preemptions.
BlockCounts AdmissionControl::Demand(const Sequence& s) const {
  const bool whole = s.preemptions >= config_.preemptions_max;
  const int32_t tokens =
      whole ? s.stored_max : std::min(s.known_tokens() + kBlockTokens, s.stored_max);
  BlockCounts demand = BlocksOfSequence(config_.cache, tokens);
  for (size_t g = 0; g < config_.cache.groups.size(); ++g) {
    if (config_.cache.groups[g].kind == GroupKind::kState) {
      demand.by_group[g] = StateBlocksPrefill(s.stored_max);
    }
  }
  return demand;
}

// What a rank has stored of the sequence's tokens. One that was preempted often keeps all it has to
// itself.
PrefixMatch AdmissionControl::FindPrefix(Sequence& s, DpRankId rank) const {
  if (!MayReuse(s)) return {};
  PrefixMatch match = ranks_[rank].cache.Match({s.request.tenant, s.request.cache_salt, rank.value},
                                               s.tokens(), s.reuse_limit(), s.keys);
  if (s.wants_prompt_logprobs && match.stop == ReuseStop::kComplete) match.stop = ReuseStop::kOff;
  return match;
}

// All the blocks that the admission needs, or none.
bool AdmissionControl::TakeBlocks(Sequence& s, DpRank& rank, PrefixMatch match) {
  s.reuses = MayReuse(s);
  const auto take = [&] {
    const PrefixSpace space{s.request.tenant, s.request.cache_salt, s.dp_rank.value};
    if (s.reuses) s.blocks.Enter(space, match, rank.cache);
    if (s.blocks.Reserve(Demand(s), rank.cache)) return true;
    s.blocks.ReleaseAll(rank.cache);
    return false;
  };
  if (!take()) {
    // Reused blocks stay where they are, in pages that other groups then cannot have, and the state
    // that the sequence resumes from comes on top of its own. Without reuse a sequence that has the
    // rank to itself always fits; with it, it could wait for ever.
    if (match.nodes.empty() || !rank.running.empty()) return false;
    match = {.stop = ReuseStop::kEvicted, .evicted_epoch = epochs_, .nodes = {}};
    if (!take()) return false;
  }
  if (s.reuses) s.blocks.Stamp(match, ++epochs_, rank.cache);
  CHECK(s.planned == 0 && s.unresolved == 0 && s.rows_in_flight == 0);
  s.planned = match.tokens;
  s.arriving = match.stored > match.tokens ? match.stored : 0;
  const int32_t resumes = std::max(match.tokens, match.stored);
  s.branch_at = match.known > resumes ? match.known : 0;
  s.prefill_end = s.known_tokens();
  if (s.arriving == 0 && !std::exchange(s.ever_admitted, true)) CountReuse(s, match);
  return true;
}

void AdmissionControl::CountArrived(Sequence& s, int32_t end, int32_t from_disk) {
  if (std::exchange(s.ever_admitted, true)) return;
  const bool all = s.prompt_tokens() - end <= kBlockTokens;
  CountReuse(s, {.tokens = end,
                 .known = end,
                 .stored = end,
                 .stop = all ? ReuseStop::kComplete : ReuseStop::kNeverSeen,
                 .nodes = {}});
  s.reuse.stored = end - s.planned;
  s.reuse.host = s.reuse.stored - std::min(from_disk, s.reuse.stored);
  counts_.stored_tokens += s.reuse.stored;
  counts_.host_tokens += s.reuse.host;
}

void AdmissionControl::CountReceived(const Sequence& s, bool arrived) {
  (arrived ? counts_.received_tokens : counts_.computed_tokens) += s.prompt_tokens() - s.planned;
}

void AdmissionControl::CountReuse(Sequence& s, const PrefixMatch& match) {
  s.reuse = {.tokens = match.tokens, .known = match.known, .stop = match.stop};
  counts_.prompt_tokens += s.prompt_tokens();
  counts_.reused_tokens += match.tokens;
  if (!s.receives) counts_.computed_tokens += s.prompt_tokens() - match.tokens;
  ++counts_.reuse_stops[static_cast<size_t>(match.stop)];
  // Without a snapshot the tokens up to `known` are lost; those after it were never stored.
  const bool snapshot = match.stop == ReuseStop::kNoSnapshot;
  const int32_t end = snapshot ? match.known : s.prompt_tokens();
  counts_.lost_tokens[static_cast<size_t>(match.stop)] += end - match.tokens;
  counts_.lost_tokens[static_cast<size_t>(ReuseStop::kNeverSeen)] += s.prompt_tokens() - end;
}

// The ranks to try, best first.
std::vector<DpRankId> AdmissionControl::Placements(Sequence& s) const {
  std::vector<DpRankId> order;
  for (const DpRankId r : ranks_.ids()) order.push_back(r);
  if (order.size() == 1) return order;
  if (config_.placement == Placement::kRoundRobin) {
    std::rotate(order.begin(), order.begin() + next_.value, order.end());
    return order;
  }
  const auto load = [&](DpRankId r) { return static_cast<int32_t>(ranks_[r].running.size()); };
  std::stable_sort(order.begin(), order.end(),
                   [&](DpRankId a, DpRankId b) { return load(a) < load(b); });
  if (config_.placement == Placement::kLeastLoaded) return order;
  const int32_t skew_max = std::max(config_.running_max / kSkewDivisor, 1);
  const int32_t least = load(order.front());
  std::stable_partition(order.begin(), order.end(), [&](DpRankId r) {
    if (load(r) - least > skew_max) return false;
    const PrefixMatch found = FindPrefix(s, r);
    const Leader leader = FindLeader(s, ranks_[r], found);
    return 2 * std::max(found.tokens, leader.tokens) > s.known_tokens();
  });
  return order;
}

// Admits the sequence, or lets it follow one that runs there. False when there is no room.
bool AdmissionControl::AdmitTo(Sequence& s, DpRankId r) {
  DpRank& rank = ranks_[r];
  if (gates_[r].closed) return false;
  PrefixMatch match = FindPrefix(s, r);
  if (FollowAnyone(s, r, match)) return true;
  if (!HasSlot(r)) return false;
  CHECK(!rank.starving.valid(), "request {} is admitted before request {}, which found no blocks",
        s.id.value, rank.starving.value);
  s.dp_rank = r;
  if (!TakeBlocks(s, rank, std::move(match))) {
    s.dp_rank = DpRankId();
    gates_[r].refused = s.id;
    return false;
  }
  queue_.Admitted(s);
  queue_.Erase(s);
  EndAhead(s);
  // For what is to be computed at once, less what an earlier admission charged and nobody computed;
  // ChargeComputed adds what comes on top.
  const int64_t now = s.known_tokens() - std::max(s.planned, s.arriving);
  const int64_t charge = std::max<int64_t>(now + s.computed, 0);
  queue_.Charge(s, charge);
  s.computed -= charge;
  s.waiting = false;
  const int32_t slot = rank.free_slots.Lowest();
  rank.free_slots.Erase(slot);
  s.slot = SlotId(r.value * config_.running_max + slot);
  next_ = DpRankId((r.value + 1) % config_.dp_ranks);
  s.receives || s.arriving > 0 ? Move(s.phase, PagesAwaited{}) : Move(s.phase, Admitted{});
  s.output.reserve(static_cast<size_t>(std::min(s.length_max - s.prompt_tokens(), 4096)));
  rank.running.insert(std::upper_bound(rank.running.begin(), rank.running.end(), &s, ByPriority{}),
                      &s);
  admitted_.push_back(&s);
  return true;
}

// Admits the first of all that wait, or closes the rank that it waits for. False when nobody is
// left whom a rank could take.
bool AdmissionControl::AdmitFirst() {
  Sequence* first = queue_.First(DpRankId());
  for (const DpRankId r : ranks_.ids()) {
    Sequence* own = gates_[r].closed ? nullptr : queue_.First(r);
    if (own != nullptr && (first == nullptr || queue_.Before(*own, *first))) first = own;
  }
  if (first == nullptr) return false;
  Sequence& s = *first;
  if (const DpRankId r(s.request.dp_rank); r.valid()) {
    Gate& gate = gates_[r];
    const int64_t version = ranks_[r].cache.version();
    const bool known = gate.blocked == s.id && gate.blocked_at == version;
    if (!known && AdmitTo(s, r)) return true;
    gate.blocked = HasSlot(r) ? s.id : RequestId();
    gate.blocked_at = ranks_[r].cache.version();
    gate.closed = true;
    return true;
  }
  if (blocked_ == s.id && blocked_at_ == CacheVersion()) return false;
  for (const DpRankId r : Placements(s)) {
    if (AdmitTo(s, r)) return true;
  }
  const auto open = [&](DpRankId r) { return !gates_[r].closed && HasSlot(r); };
  const auto ids = ranks_.ids();
  blocked_ = std::all_of(ids.begin(), ids.end(), open) ? s.id : RequestId();
  blocked_at_ = CacheVersion();
  return false;
}

bool AdmissionControl::awaits_blocks(DpRankId rank) const {
  const auto refused = [&](const Sequence* first) {
    return first != nullptr && first->id == gates_[rank].refused;
  };
  return refused(queue_.First(DpRankId())) || refused(queue_.First(rank));
}

const std::vector<Sequence*>& AdmissionControl::Admit() {
  admitted_.clear();
  bool open = false;
  for (const DpRankId r : ranks_.ids()) {
    const DpRank& rank = ranks_[r];
    // Room that a preemption made is not for newcomers.
    gates_[r].closed = rank.preempted || rank.draining > 0 || rank.starving.valid();
    open |= !gates_[r].closed && !rank.free_slots.empty();
  }
  while (open && !queue_.empty() && AdmitFirst()) {
  }
  return admitted_;
}

}  // namespace braid
