// Plans: decode rows, admission, prefill chunks, and who makes room when there is none. Engine
// thread.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "cache/planted_bug.h"
#include "scheduler/scheduler_state.h"

namespace braid {

Plan Scheduler::State::Build() {
  CHECK(steps.size() <= 1, "{} steps are in flight", steps.size());
  Plan plan;
  plan.rows.reserve(running.size() + 4);
  plan.tokens.reserve(running.size() + 4);
  next.rows.clear();
  next.rows.reserve(running.size() + 4);
  do {
    preempted = false;
    PlanDecodes(plan);
    Admit();
    PlanPrefills(plan);
    // A sequence that made room for itself comes back in the same plan when nothing else could run.
  } while (plan.empty() && preempted && steps.empty());
  if (plan.empty()) return plan;
  plan.step = StepId(steps_planned++);
  plan.released = std::move(departed);
  departed.clear();
  next.id = plan.step;
  steps.push_back(std::move(next));
  next = std::move(landed);
  return plan;
}

void Scheduler::State::PlanDecodes(Plan& plan) {
  for (size_t i = 0; i < running.size();) {
    Sequence& s = *running[i];
    if (s.decode_ready()) PlanDecode(s, plan);
    if (i < running.size() && running[i] == &s) ++i;  // not preempted
  }
}

void Scheduler::State::PlanDecode(Sequence& s, Plan& plan) {
  while (!AddRow(s, 1, plan)) {
    if (!MakeWay(s)) return;
  }
  ++decode_tokens;
}

// Whether to try again now: a sequence whose row found no blocks has made somebody lose theirs.
bool Scheduler::State::MakeWay(Sequence& s) {
  starving = s.request.id;
  // Its own rows give a state block back when they land, and a victim's rows give its blocks.
  if (s.rows_in_flight > 0 || draining > 0) return false;
  Sequence& victim = Victim();
  Preempt(victim);
  return &victim != &s;
}

// The last-ranked sequence. The one that needs room is never protected (it would own all it can
// need), so there is always one. It may have a row in this plan; it then leaves when that lands.
Sequence& Scheduler::State::Victim() const {
  for (size_t i = running.size(); i-- > 0;) {
    if (running[i]->preemptions < config.preemptions_max) return *running[i];
  }
  CheckFailed(__FILE__, __LINE__, "a sequence that may be preempted", "");
}

// Blocks for all known tokens and one block of output, or for everything after many preemptions.
BlockCounts Scheduler::State::AdmissionDemand(const Sequence& s) const {
  const bool whole =
      s.preemptions >= config.preemptions_max && !Planted(PlantedBug::kHeadroomNotReserved);
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

// What is stored of the sequence's tokens. A prompt that is scored needs every position that was
// not reported yet; one that was preempted often keeps all it has to itself.
PrefixMatch Scheduler::State::FindPrefix(const Sequence& s) const {
  if (!s.reuses) return {};
  const bool scored = s.request.prompt_logprobs >= 0;
  const int32_t limit = scored ? s.prompt_logprobs_done : s.known_tokens();
  PrefixMatch match = cache.Match({s.request.tenant, s.request.dp_rank}, s.tokens(), limit);
  if (scored && match.stop == ReuseStop::kComplete) match.stop = ReuseStop::kOff;
  return match;
}

// All the blocks that the admission needs, or none.
bool Scheduler::State::Seat(Sequence& s) {
  s.reuses = config.prefix_cache && s.preemptions < config.preemptions_max;
  const PrefixMatch match = FindPrefix(s);
  if (s.reuses) s.blocks.Enter({s.request.tenant, s.request.dp_rank}, match, cache);
  if (!s.blocks.Reserve(AdmissionDemand(s), cache)) {
    s.blocks.ReleaseAll(false, cache);
    return false;
  }
  if (s.reuses) s.blocks.Stamp(match, ++epochs, cache);
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

void Scheduler::State::Admit() {
  // The room that was made is not for newcomers.
  if (preempted || draining > 0 || starving.valid()) return;
  while (!queue.empty() && !free_slots.empty()) {
    Sequence& s = **queue.begin();
    if (blocked == s.request.id && blocked_at == cache.version()) return;
    if (!Seat(s)) {
      blocked = s.request.id;
      blocked_at = cache.version();
      return;
    }
    queue.erase(queue.begin());
    s.waiting = false;
    s.slot = SlotId(free_slots.Lowest());
    free_slots.Erase(s.slot.value);
    Move(s.phase, Admitted{});
    s.output.reserve(static_cast<size_t>(std::min(s.length_max - s.prompt_tokens(), 4096)));
    running.insert(std::upper_bound(running.begin(), running.end(), &s, ByRank{}), &s);
  }
}

void Scheduler::State::PlanPrefills(Plan& plan) {
  prefills.clear();
  for (Sequence* s : running) {
    if (s->Is<Prefilling>()) prefills.push_back(s);
  }
  if (prefills.empty()) return;
  const int32_t budget = config.step_tokens_max - static_cast<int32_t>(plan.tokens.size());
  Sequence& first = *prefills.front();
  // The first-ranked gets half at least and what the others leave; they go shortest remainder
  // first.
  int32_t shared = budget - std::min(first.prefill_end - first.planned, budget - budget / 2);
  std::stable_sort(prefills.begin() + 1, prefills.end(), [](const Sequence* a, const Sequence* b) {
    return a->prefill_end - a->planned < b->prefill_end - b->planned;
  });
  int32_t used = 0;
  for (size_t i = 1; i < prefills.size() && used < shared; ++i) {
    used += PlanChunk(*prefills[i], shared - used, false, plan);
  }
  PlanChunk(first, budget - used, true, plan);
}

int32_t Scheduler::State::PlanChunk(Sequence& s, int32_t budget, bool first, Plan& plan) {
  if (!s.Is<Prefilling>()) return 0;  // preempted a moment ago
  const int32_t count = ChunkTokens(s, budget, first);
  if (count == 0) return 0;
  while (!AddRow(s, count, plan)) {
    if (!MakeWay(s)) return 0;
  }
  if (s.planned == s.prefill_end) Move(s.phase, PrefillPlanned{});
  prefill_tokens += count;
  return count;
}

// Where the next chunk must end at the latest so that a state is left there: at the branch point
// that this request revealed, and at the last boundary that the same prompt could resume from.
int32_t Scheduler::State::PrefillCut(const Sequence& s) const {
  if (!s.reuses || !has_state) return s.prefill_end;
  if (s.planned < s.branch_at) return s.branch_at;
  const int32_t last = (s.prefill_end - 1) / kBlockTokens * kBlockTokens;
  return s.planned < last && s.prefill_end % kBlockTokens == 0 ? last : s.prefill_end;
}

// Chunks end at block boundaries where the budget reaches one. A crumb inside a block is worth a
// row only for the first-ranked, which must go on, or when chunks are limited to less than a block.
int32_t Scheduler::State::ChunkTokens(const Sequence& s, int32_t budget, bool first) const {
  const int32_t chunk_max = config.chunk_tokens_max > 0 ? config.chunk_tokens_max : budget;
  const int32_t remaining = PrefillCut(s) - s.planned;
  const int32_t count = std::min({remaining, budget, chunk_max});
  const int32_t end = s.planned + count;
  const int32_t to_boundary = end / kBlockTokens * kBlockTokens - s.planned;
  if (count < remaining) {
    if (to_boundary > 0) return to_boundary;
    return first || count == config.chunk_tokens_max ? count : 0;
  }
  // From inside one block to inside another beyond the next it would hold four states, not three.
  const bool inside = s.planned % kBlockTokens != 0 && end % kBlockTokens != 0;
  if (inside && end / kBlockTokens - 1 > s.planned / kBlockTokens) return to_boundary;
  return count;
}

// False, with nothing changed, when the row's blocks cannot be had.
bool Scheduler::State::AddRow(Sequence& s, int32_t count, Plan& plan) {
  const int32_t start = s.planned;
  const int32_t end = start + count;
  changes.clear();
  if (!s.announced && !Planted(PlantedBug::kSnapshotNotRestored) &&
      !(s.preemptions > 0 && Planted(PlantedBug::kStaleAfterPreemption))) {
    s.blocks.AppendEntries(changes);
  }
  if (!s.blocks.Cover(start, end, cache, changes)) return false;
  if (starving == s.request.id) starving = RequestId();
  if (!s.announced) {
    s.announced = true;
    std::erase(departed, s.slot);
    plan.admissions.push_back({.slot = s.slot, .request = &s.request, .output = s.output});
  }
  for (const TableChange& c : changes) plan.tables.push_back({s.slot, c.group, c.index, c.block});
  const Row row{.slot = s.slot,
                .request = s.request.id,
                .token_begin = static_cast<int32_t>(plan.tokens.size()),
                .token_count = count,
                .start = start,
                .sample = end >= s.prefill_end && s.known_tokens() + s.unresolved < s.length_max,
                .prompt_logprobs = s.request.prompt_logprobs >= 0 && start < s.prompt_tokens() &&
                                   end > s.prompt_logprobs_done};
  for (int32_t p = start; p < end; ++p) {
    const bool stale = Planted(PlantedBug::kStaleToken) && s.token(p) == kSampledInFlight;
    plan.tokens.push_back(s.token(stale ? p - 1 : p));
  }
  plan.rows.push_back(row);
  next.rows.push_back({&s, start, end, row.sample, row.prompt_logprobs});
  s.planned = end;
  s.unresolved += row.sample;
  ++s.rows_in_flight;
  if (Planted(PlantedBug::kPublishedTooEarly) && end <= s.known_tokens())
    Publish(s, next.rows.back());
  return true;
}

}  // namespace braid
