// Plans: decode rows, prefill chunks, and who makes room when there is none. Engine thread.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "scheduler/scheduler_state.h"

namespace braid {

Plan Scheduler::State::Build() {
  CHECK(steps.size() <= 1, "{} steps are in flight", steps.size());
  parts.resize(ranks.size());
  next.resize(ranks.size());
  next[0] = std::move(landed);
  bool empty = true, again = true;
  for (size_t r = 0; r < ranks.size(); ++r) {
    parts[r].rows.reserve(ranks[r].running.size() + 4);
    parts[r].tokens.reserve(ranks[r].running.size() + 4);
    next[r].rows.clear();
    next[r].rows.reserve(ranks[r].running.size() + 4);
    next[r].prefill_tokens = 0;
  }
  // A sequence that made room for itself comes back in the same plan when nothing else could run.
  while (empty && again) {
    again = false;
    decode_rows = 0;
    for (Rank& rank : ranks) {
      rank.preempted = false;
      PlanDecodes(rank);
    }
    Admit();
    for (Rank& rank : ranks) PlanPrefills(rank);
    for (size_t r = 0; r < ranks.size(); ++r) {
      empty &= parts[r].empty();
      again |= ranks[r].preempted && steps.empty();
    }
  }
  return empty ? Plan() : Joined();
}

// The ranks' parts as one plan, and its step as the one in flight.
Plan Scheduler::State::Joined() {
  Plan plan = std::exchange(parts[0], {});
  plan.dp_rank_rows.push_back(static_cast<int32_t>(plan.rows.size()));
  for (size_t r = 1; r < parts.size(); ++r) {
    Plan& part = parts[r];
    const auto append = [](auto& from, auto& to) {
      to.insert(to.end(), std::make_move_iterator(from.begin()),
                std::make_move_iterator(from.end()));
    };
    for (Row& row : part.rows) row.token_begin += static_cast<int32_t>(plan.tokens.size());
    plan.dp_rank_rows.push_back(static_cast<int32_t>(part.rows.size()));
    append(part.admissions, plan.admissions);
    append(part.tables, plan.tables);
    append(part.rows, plan.rows);
    append(part.tokens, plan.tokens);
    append(part.transfers, plan.transfers);
    append(next[r].rows, next[0].rows);
    // Ranks work side by side: the longest decides what the step costs.
    next[0].prefill_tokens = std::max(next[0].prefill_tokens, next[r].prefill_tokens);
    part = Plan();
  }
  for (size_t r = 0; config.report_freed && r < ranks.size(); ++r) {
    for (const auto& [group, block] : ranks[r].cache.TakeFreed()) {
      plan.freed.push_back({static_cast<int32_t>(r), group, block});
    }
  }
  plan.step = StepId(steps_planned++);
  plan.released = std::exchange(departed, {});
  next[0].id = plan.step;
  steps.push_back(std::exchange(next[0], {}));
  return plan;
}

void Scheduler::State::PlanDecodes(Rank& rank) {
  std::vector<Sequence*>& running = rank.running;
  draft_budget = (config.step_tokens_max - static_cast<int32_t>(running.size())) / 2;
  const bool guesses = config.draft_tokens_max > 0;
  for (size_t i = 0; i < running.size();) {
    Sequence& s = *running[i];
    if (s.decode_ready()) {
      if (!guesses || s.rows_in_flight == 0) PlanDecode(s);
    } else if (s.Is<Sending>() && s.rows_in_flight == 0) {
      PlanTransfer(s, false);
    }
    if (i < running.size() && running[i] == &s) ++i;  // not preempted
  }
}

// How many of a sequence's guesses its next row takes: they stay within the length and the budget,
// and inside one block, so that taking them back never concerns a block that is complete.
int32_t Scheduler::State::DraftTokens(const Sequence& s) const {
  if (s.drafts.empty()) return 0;
  const int32_t first = s.planned + 1;  // position of the first guess
  const int32_t to_boundary = kBlockTokens - 1 - first % kBlockTokens;
  const int32_t most = std::min({config.draft_tokens_max, to_boundary, s.length_max - first - 1});
  return std::min({static_cast<int32_t>(s.drafts.size()), most, draft_budget});
}

// For guesses nobody makes way.
void Scheduler::State::PlanDecode(Sequence& s) {
  if (!s.drafts.empty()) s.drafts.resize(static_cast<size_t>(DraftTokens(s)));
  if (!s.drafts.empty() && !AddRow(s, 1)) s.drafts.clear();
  while (s.drafts.empty() && !AddRow(s, 1)) {
    if (!PreemptFor(s)) return;
  }
  draft_budget -= static_cast<int32_t>(s.drafts.size());
  drafts_planned += static_cast<int64_t>(s.drafts.size());
  ++decode_rows;
  ++decode_tokens;
}

// The prompt's pages, from where they are known to its end. They are in use as those of a row are.
void Scheduler::State::PlanTransfer(Sequence& s, bool receive) {
  if (receive) {
    CHECK(Cover(s, s.planned, s.prompt_tokens()), "request {} awaits pages without blocks",
          s.id.value);
  }
  s.transferring = true;
  ++s.rows_in_flight;
  ++transfers;
  parts[static_cast<size_t>(s.dp_rank)].transfers.push_back(
      {s.slot, s.id, receive, receive ? s.planned : 0, s.prompt_tokens()});
}

// Whether to try again now: a sequence whose row found no blocks has made somebody lose theirs.
bool Scheduler::State::PreemptFor(Sequence& s) {
  Rank& rank = RankOf(s);
  rank.starving = s.id;
  // Its own rows give a state block back when they land, and a victim's rows give its blocks.
  if (s.rows_in_flight > 0 || rank.draining > 0) return false;
  Sequence& victim = Victim(rank);
  Preempt(victim);
  return &victim != &s;
}

// The last sequence, by priority, that computes. The one that needs room is never protected (it
// would own all it can need), so there is always one. It may have a row in this plan; it then
// leaves when that lands.
Sequence& Scheduler::State::Victim(const Rank& rank) const {
  const std::vector<Sequence*>& running = rank.running;
  for (size_t i = running.size(); i-- > 0;) {
    const bool computes = running[i]->Is<Prefilling>() || running[i]->Is<Decoding>();
    if (computes && running[i]->preemptions < config.preemptions_max) return *running[i];
  }
  CheckFailed(__FILE__, __LINE__, "a sequence that may be preempted", "");
}

// What decode rows leave of the step's tokens, or less, so that they do not wait too long.
int32_t Scheduler::State::PrefillBudget(int32_t planned) const {
  const int32_t budget = config.step_tokens_max - planned;
  if (config.decode_latency_us == 0 || decode_rows == 0) return budget;
  return cost.Ration(config.decode_latency_us, budget);
}

void Scheduler::State::PlanPrefills(Rank& rank) {
  prefills.clear();
  for (Sequence* s : rank.running) {
    if (s->Is<Prefilling>()) prefills.push_back(s);
  }
  if (prefills.empty()) return;
  Sequence& first = *prefills.front();
  const Plan& part = parts[static_cast<size_t>(first.dp_rank)];
  const int32_t budget = PrefillBudget(static_cast<int32_t>(part.tokens.size()));
  // The first gets half at least and what the others leave; they go shortest remainder
  // first.
  int32_t shared = budget - std::min(first.prefill_end - first.planned, budget - budget / 2);
  std::stable_sort(prefills.begin() + 1, prefills.end(), [](const Sequence* a, const Sequence* b) {
    return RemainingOf(*a) < RemainingOf(*b);
  });
  int32_t used = 0;
  for (size_t i = 1; i < prefills.size() && used < shared; ++i) {
    used += PlanChunk(*prefills[i], shared - used, false);
  }
  PlanChunk(first, budget - used, true);
}

int32_t Scheduler::State::PlanChunk(Sequence& s, int32_t budget, bool first) {
  if (!s.Is<Prefilling>()) return 0;  // preempted a moment ago
  const int32_t count = ChunkTokens(s, budget, first);
  if (count == 0) return 0;
  while (!AddRow(s, count)) {
    if (!PreemptFor(s)) return 0;
  }
  if (s.planned == s.prefill_end) {
    const bool leaves = s.request.role == RequestRole::kPrefill;
    leaves ? Move(s.phase, HandoffPlanned{}) : Move(s.phase, PrefillPlanned{});
  }
  prefill_tokens += count;
  next[static_cast<size_t>(s.dp_rank)].prefill_tokens += count;
  return count;
}

// Where the next chunk must end at the latest so that a state is left there: at the branch point
// that this request revealed, where a follower goes on, and where the same prompt, or the next turn
// after it, resumes.
int32_t Scheduler::State::PrefillCut(const Sequence& s) const {
  if (!s.reuses || !has_state) return s.prefill_end;
  int32_t cut = s.prefill_end;
  const int32_t resumed = ResumedAt(s.prefill_end);
  if (s.planned < resumed && s.prefill_end - resumed >= kBlockTokens) cut = resumed;
  if (s.planned < s.branch_at) cut = std::min(cut, s.branch_at);
  for (const Sequence* follower : s.followers) {
    if (s.planned < follower->awaited) cut = std::min(cut, follower->awaited);
  }
  return cut;
}

// What decides who goes first: the tokens up to where somebody is waiting for, or all.
int32_t Scheduler::State::RemainingOf(const Sequence& s) {
  int32_t end = s.prefill_end;
  for (const Sequence* follower : s.followers) {
    if (s.planned < follower->awaited) end = std::min(end, follower->awaited);
  }
  return end - s.planned;
}

// Chunks end at block boundaries where the budget reaches one. A crumb inside a block is worth a
// row only for the first, which must go on, or when chunks are limited to less than a block.
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

void Sequence::AppendTokens(int32_t begin, int32_t end, std::vector<TokenId>& out) const {
  for (int32_t p = begin; p < end; ++p) out.push_back(token(p));
}

// Blocks for tokens [start, end), and the plan says so; false, with nothing changed, when they
// cannot be had.
bool Scheduler::State::Cover(Sequence& s, int32_t start, int32_t end) {
  Rank& rank = RankOf(s);
  const bool there = s.announced && s.blocks.Covers(start, end);
  if (!there && !CoverAnew(s, start, end)) return false;
  if (rank.starving == s.id) rank.starving = RequestId();
  return true;
}

// The same for a sequence that has not all of them yet, or that the executor does not know.
bool Scheduler::State::CoverAnew(Sequence& s, int32_t start, int32_t end) {
  Rank& rank = RankOf(s);
  Plan& plan = parts[static_cast<size_t>(s.dp_rank)];
  changes.clear();
  if (!s.announced) s.blocks.AppendEntries(changes);
  if (!s.blocks.Cover(start, end, rank.cache, changes)) return false;
  if (!s.announced) {
    s.announced = true;
    std::erase(departed, s.slot);
    plan.admissions.push_back({.slot = s.slot, .request = &s.request, .output = s.output});
  }
  for (const TableChange& c : changes) plan.tables.push_back({s.slot, c.group, c.index, c.block});
  return true;
}

// `count` tokens that are known, and the sequence's guesses behind them; false, with nothing
// changed, when the row's blocks cannot be had.
bool Scheduler::State::AddRow(Sequence& s, int32_t count) {
  Plan& plan = parts[static_cast<size_t>(s.dp_rank)];
  Step& step = next[static_cast<size_t>(s.dp_rank)];
  const auto drafts = static_cast<int32_t>(s.drafts.size());
  const int32_t start = s.planned;
  const int32_t end = start + count;
  if (!Cover(s, start, end + drafts)) return false;
  const Row row{.slot = s.slot,
                .request = s.id,
                .token_begin = static_cast<int32_t>(plan.tokens.size()),
                .token_count = count + drafts,
                .start = start,
                .drafts = drafts,
                .sample = end >= s.prefill_end && s.known_tokens() + s.unresolved < s.length_max,
                .prompt_logprobs = s.wants_prompt_logprobs && start < s.prompt_tokens() &&
                                   end > s.prompt_logprobs_done};
  s.AppendTokens(start, end, plan.tokens);
  if (drafts > 0) plan.tokens.insert(plan.tokens.end(), s.drafts.begin(), s.drafts.end());
  plan.rows.push_back(row);
  step.rows.push_back({&s, start, end, drafts, row.sample, row.prompt_logprobs});
  s.planned = end + drafts;
  s.computed += row.token_count;
  s.unresolved += row.sample;
  ++s.rows_in_flight;
  return true;
}

}  // namespace braid
