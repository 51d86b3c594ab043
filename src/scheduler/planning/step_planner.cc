// See the header.
#include "scheduler/planning/step_planner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/planning/prefill_chunk.h"

namespace braid {
namespace {

// A step in which drafts that are more often right than wrong are taken though they do not seem to
// pay: what a token adds to a step shows only in steps of different lengths.
constexpr int64_t kTryEvery = 64;

bool TriesDrafts(int64_t step, const Acceptance& acceptance) {
  return step % kTryEvery == 0 && acceptance.chance(0) > kWhole / 2;
}

int32_t DraftTokensMax(const SchedulerConfig& config, const Request& request) {
  const int32_t asked = request.draft_tokens;
  return asked < 0 ? config.draft_tokens_max : std::min(asked, config.draft_tokens_max);
}

}  // namespace

StepPlanner::StepPlanner(const SchedulerConfig& config, DpRanks& ranks, AdmissionControl& admission,
                         PageMoves& moves, LifeCycle& life_cycle)
    : config_(config),
      ranks_(ranks),
      admission_(admission),
      moves_(moves),
      life_cycle_(life_cycle),
      has_state_(HasState(config.cache)),
      parts_(ranks.size()) {
  changes_.reserve(16);
}

const std::vector<RowInFlight>& StepPlanner::TakeStep(const StepDone& done) {
  CHECK(!steps_.empty() && steps_.front().id == done.step, "step {} was not the oldest in flight",
        done.step.value);
  done_ = std::move(steps_.front());
  steps_.pop_front();
  CHECK(done_.rows.size() == done.rows.size(), "step {} has {} rows, {} came back", done.step.value,
        done_.rows.size(), done.rows.size());
  cost_.Learn(done.duration_us, done_.prefill_tokens, done_.decode_tokens);
  return done_.rows;
}

Plan StepPlanner::Next() {
  CHECK(steps_.size() <= 1, "{} steps are in flight", steps_.size());
  Clear();
  bool empty = true, again = true;
  // A sequence that preempted itself comes back in the same plan when nothing else could run.
  while (empty && again) {
    again = false;
    decode_rows_ = 0;
    for (DpRank& rank : ranks_) {
      rank.preempted = false;
      PlanDecodes(rank);
    }
    for (Sequence* s : admission_.Admit()) {
      if (!s->Is<Receiving>()) continue;
      PlanMove(*s, s->arriving > 0 ? Place::kDisk : Place::kPeer, Direction::kIn);
    }
    for (const DpRankId r : ranks_.ids()) PlanPrefills(r);
    for (const DpRankId r : ranks_.ids()) {
      empty &= parts_[r].plan.empty();
      again |= ranks_[r].preempted && steps_.empty();
    }
  }
  for (const DpRankId r : ranks_.ids()) {
    const bool awaited = ranks_[r].starving.valid() || admission_.awaits_blocks(r);
    moves_.PlanWrites(r, awaited, parts_[r].plan.moves);
    empty &= parts_[r].plan.empty();
  }
  if (empty) return {};
  Plan plan = Joined();
  admission_.PlanReadAhead(plan.ahead);
  return plan;
}

void StepPlanner::Clear() {
  parts_.front().step = std::move(done_);
  for (const DpRankId r : ranks_.ids()) {
    const size_t rows = ranks_[r].running.size() + 4;
    Part& part = parts_[r];
    part.plan.rows.reserve(rows);
    part.plan.tokens.reserve(rows);
    part.step.rows.clear();
    part.step.rows.reserve(rows);
    part.step.prefill_tokens = 0;
    part.step.decode_tokens = 0;
  }
}

// The ranks' parts as one plan, and its step as the one in flight.
Plan StepPlanner::Joined() {
  Plan plan = std::exchange(parts_.front().plan, {});
  Step step = std::exchange(parts_.front().step, {});
  plan.dp_rank_rows.push_back(static_cast<int32_t>(plan.rows.size()));
  const auto append = [](auto& from, auto& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  for (const DpRankId r : ranks_.ids()) {
    if (r.value == 0) continue;
    Plan& part = parts_[r].plan;
    for (Row& row : part.rows) row.token_begin += static_cast<int32_t>(plan.tokens.size());
    plan.dp_rank_rows.push_back(static_cast<int32_t>(part.rows.size()));
    append(part.admissions, plan.admissions);
    append(part.tables, plan.tables);
    append(part.rows, plan.rows);
    append(part.tokens, plan.tokens);
    append(part.moves, plan.moves);
    append(parts_[r].step.rows, step.rows);
    // Ranks work side by side: the longest decides what the step costs.
    step.prefill_tokens = std::max(step.prefill_tokens, parts_[r].step.prefill_tokens);
    step.decode_tokens = std::max(step.decode_tokens, parts_[r].step.decode_tokens);
    part = Plan();
  }
  if (config_.report_freed) {
    for (const DpRankId r : ranks_.ids()) {
      for (const auto& [group, block] : ranks_[r].cache.TakeFreed()) {
        plan.freed.push_back({r, group, block});
      }
    }
  }
  plan.step = StepId(counts_.steps++);
  plan.released = life_cycle_.TakeDeparted();
  step.id = plan.step;
  steps_.push_back(std::move(step));
  return plan;
}

void StepPlanner::PlanDecodes(DpRank& rank) {
  std::vector<Sequence*>& running = rank.running;
  draft_budget_ = (config_.step_tokens_max - static_cast<int32_t>(running.size())) / 2;
  const bool awaits_drafts = config_.draft_tokens_max > 0;
  if (config_.draft_adapt) {
    const auto ready = std::count_if(running.begin(), running.end(),
                                     [](const Sequence* s) { return s->decode_ready(); });
    trade_ =
        DraftTrade(cost_.decode(), static_cast<int32_t>(ready), config_.decode_latency_us > 0);
  }
  for (size_t i = 0; i < running.size();) {
    Sequence& s = *running[i];
    if (s.decode_ready()) {
      if (!awaits_drafts || s.rows_in_flight == 0) PlanDecode(s);
    } else if (s.Is<Sending>() && s.rows_in_flight == 0) {
      PlanMove(s, Place::kPeer, Direction::kOut);
    } else if (s.Is<Receiving>() && s.rows_in_flight == 0) {  // what a tier had has come
      PlanMove(s, Place::kPeer, Direction::kIn);
    }
    if (i < running.size() && running[i] == &s) ++i;  // not preempted
  }
}

// How many of a sequence's drafts its next row takes: they stay within the length and the budget,
// and inside one block, so that a rejected draft never was part of a complete block.
int32_t StepPlanner::DraftTokens(const Sequence& s) {
  if (s.drafts.empty()) return 0;
  const int32_t first = s.planned + 1;  // position of the first draft
  const int32_t most =
      std::min({DraftTokensMax(config_, s.request), DraftsInBlock(first), s.length_max - first - 1,
                static_cast<int32_t>(s.drafts.size()), draft_budget_});
  if (!config_.draft_adapt) return most;
  const Acceptance& acceptance = s.acceptance[static_cast<size_t>(s.drafts_of)];
  const int32_t paying = trade_.Take(acceptance, most);
  return TriesDrafts(counts_.steps, acceptance) ? std::max(paying, std::min(most, 1)) : paying;
}

// Looking up costs nothing, and what is proposed and not taken shows what taking it would bring. A
// head's drafts cost time: as many as would pay now, and now and then one, to see.
std::array<int8_t, kDraftSources> StepPlanner::DraftsWanted(const Sequence& s) const {
  constexpr int32_t kLookEvery = 16, kProbeEvery = 64;
  const int32_t most = DraftTokensMax(config_, s.request);
  const auto wanted = [](int32_t count) { return static_cast<int8_t>(count); };
  if (!config_.draft_head || most == 0) {
    return {wanted(most), wanted(config_.draft_lookup ? most : 0), 0};
  }
  if (!config_.draft_adapt) {
    return {wanted(most), wanted(config_.draft_lookup ? most : 0), wanted(most)};
  }
  DraftTrade by_lookup = trade_, by_head = trade_;
  by_lookup.Take(s.acceptance[static_cast<size_t>(DraftSource::kLookup)], most);
  const Acceptance& head = s.acceptance[static_cast<size_t>(DraftSource::kHead)];
  int32_t depth = by_head.Take(head, most);
  const bool tries = s.sampled_rows % kProbeEvery == 0 || TriesDrafts(counts_.steps + 1, head);
  if (depth == 0 && tries) depth = 1;
  const bool better = by_lookup.tokens() * by_head.ns() >= by_head.tokens() * by_lookup.ns();
  const bool looks = config_.draft_lookup && (better || s.sampled_rows % kLookEvery == 0);
  return {wanted(most), wanted(looks ? most : 0), wanted(depth)};
}

// Nobody is preempted for drafts.
void StepPlanner::PlanDecode(Sequence& s) {
  int32_t drafts = DraftTokens(s);
  if (drafts > 0 && !AddRow(s, 1, drafts)) drafts = 0;
  while (drafts == 0 && !AddRow(s, 1)) {
    if (!PreemptFor(s)) return;
  }
  draft_budget_ -= drafts;
  counts_.drafts += drafts;
  parts_[s.dp_rank].step.decode_tokens += 1 + drafts;
  ++decode_rows_;
  ++counts_.decode_rows;
}

// Pages that come begin where the sequence's own tokens end; all of the prompt's are sent.
void StepPlanner::PlanMove(Sequence& s, Place place, Direction direction) {
  PageMove move{.id = {},
                .place = place,
                .direction = direction,
                .dp_rank = s.dp_rank,
                .slot = s.slot,
                .request = s.id,
                .begin = direction == Direction::kIn ? s.planned : 0,
                .end = place == Place::kDisk ? s.arriving : s.prompt_tokens(),
                .parts = {}};
  std::vector<KnownPart> known;
  if (move.in()) {
    PrefixCache& cache = ranks_[s.dp_rank].cache;
    const bool covered =
        CoverBy(s, [&] { return s.blocks.CoverArriving(move.end, cache, changes_); });
    CHECK(covered, "request {} awaits pages without blocks", s.id.value);
    s.blocks.AppendArriving(move.begin, move.end, move.parts);
  } else {
    s.blocks.AppendParts(move.begin, move.end, move.parts);
  }
  for (PagePart& part : move.parts) {
    if (place != Place::kDisk) break;
    part.key = s.keys.pages[static_cast<size_t>(part.index)];
    known.push_back({part.key, part.kind});
  }
  move.id = life_cycle_.BeginMove(s, std::move(known));
  parts_[s.dp_rank].plan.moves.push_back(std::move(move));
}

// Preempts somebody, for the row of `s` found no blocks. True when it is worth another try now.
bool StepPlanner::PreemptFor(Sequence& s) {
  DpRank& rank = ranks_[s.dp_rank];
  rank.starving = s.id;
  // Its own rows in flight return a state block, and a victim's rows its blocks.
  if (s.rows_in_flight > 0 || rank.draining > 0) return false;
  Sequence& victim = Victim(rank);
  life_cycle_.Preempt(victim);
  return &victim != &s;
}

// The last sequence, by priority, that computes. The one that needs room is never protected (it
// would own all it can need), so there is always one. It may have a row in this plan; it then
// leaves when that has come back.
Sequence& StepPlanner::Victim(const DpRank& rank) const {
  const std::vector<Sequence*>& running = rank.running;
  for (size_t i = running.size(); i-- > 0;) {
    const bool computes = running[i]->Is<Prefilling>() || running[i]->Is<Decoding>();
    if (computes && running[i]->preemptions < config_.preemptions_max) return *running[i];
  }
  CheckFailed(__FILE__, __LINE__, "a sequence that may be preempted", "");
}

// What decode rows leave of the step's tokens, or less, so that they do not wait too long.
int32_t StepPlanner::PrefillBudget(int32_t planned) const {
  const int32_t budget = config_.step_tokens_max - planned;
  if (config_.decode_latency_us == 0 || decode_rows_ == 0) return budget;
  return cost_.Ration(config_.decode_latency_us, budget);
}

void StepPlanner::PlanPrefills(DpRankId rank) {
  prefills_.clear();
  const std::vector<Sequence*>& running = ranks_[rank].running;
  const auto most = config_.prefills_max > 0 ? static_cast<size_t>(config_.prefills_max)  //
                                             : running.size();
  for (size_t i = 0; i < running.size() && prefills_.size() < most; ++i) {
    if (running[i]->Is<Prefilling>()) prefills_.push_back(running[i]);
  }
  if (prefills_.empty()) return;
  Sequence& first = *prefills_.front();
  const int32_t budget = PrefillBudget(static_cast<int32_t>(parts_[rank].plan.tokens.size()));
  // The first gets half at least and what the others leave; they go shortest remainder first. Where
  // half a budget is no block, it gets every other budget, and less than a block is worth a row.
  const bool turns = budget < 2 * kBlockTokens;
  const int32_t least = turns ? kBlockTokens / 8 : kBlockTokens;
  int32_t firsts = budget - budget / 2;
  if (turns) firsts = counts_.steps % 2 == 0 ? budget : 0;
  const int32_t shared = budget - std::min(first.prefill_end - first.planned, firsts);
  std::stable_sort(prefills_.begin() + 1, prefills_.end(),
                   [](const Sequence* a, const Sequence* b) {
                     return PrefillRemainder(*a) < PrefillRemainder(*b);
                   });
  int32_t used = 0;
  for (size_t i = 1; i < prefills_.size() && used < shared; ++i) {
    used += PlanChunk(*prefills_[i], shared - used, least);
  }
  PlanChunk(first, budget - used, 1);
}

int32_t StepPlanner::PlanChunk(Sequence& s, int32_t budget, int32_t least) {
  if (!s.Is<Prefilling>()) return 0;  // preempted a moment ago
  const int32_t count = ChunkTokens(s, {.budget = budget,
                                        .chunk_max = config_.chunk_tokens_max,
                                        .least = least,
                                        .has_state = has_state_});
  if (count == 0) return 0;
  while (!AddRow(s, count)) {
    if (!PreemptFor(s)) return 0;
  }
  if (s.planned == s.prefill_end) {
    const bool leaves = s.request.role == RequestRole::kPrefill;
    leaves ? Move(s.phase, HandoffPlanned{}) : Move(s.phase, PrefillPlanned{});
  }
  counts_.prefill_tokens += count;
  parts_[s.dp_rank].step.prefill_tokens += count;
  return count;
}

// Blocks for tokens [start, end), and the plan says so; false, with nothing changed, when there are
// too few.
bool StepPlanner::Cover(Sequence& s, int32_t start, int32_t end) {
  const bool there = s.announced && s.blocks.Covers(start, end);
  PrefixCache& cache = ranks_[s.dp_rank].cache;
  const auto cover = [&] { return s.blocks.Cover(start, end, cache, changes_); };
  if (!there && !CoverBy(s, cover)) return false;
  DpRank& rank = ranks_[s.dp_rank];
  if (rank.starving == s.id) rank.starving = RequestId();
  return true;
}

// The same for a sequence that has not all of them yet, or that the executor does not know.
template <class F>
bool StepPlanner::CoverBy(Sequence& s, F cover) {
  Plan& plan = parts_[s.dp_rank].plan;
  changes_.clear();
  if (!s.announced) s.blocks.AppendEntries(changes_);
  if (!cover()) return false;
  if (!s.announced) {
    life_cycle_.Announce(s);
    plan.admissions.push_back({.slot = s.slot, .request = &s.request, .output = s.output});
  }
  for (const TableChange& c : changes_) plan.tables.push_back({s.slot, c.group, c.index, c.block});
  return true;
}

// `count` tokens that are known, and the first drafts of the sequence after them; false, with
// nothing changed, when there are too few blocks.
bool StepPlanner::AddRow(Sequence& s, int32_t count, int32_t drafts) {
  const int32_t start = s.planned;
  const int32_t end = start + count;
  if (!Cover(s, start, end + drafts)) return false;
  Part& part = parts_[s.dp_rank];
  Plan& plan = part.plan;
  Row row{.slot = s.slot,
          .request = s.id,
          .token_begin = static_cast<int32_t>(plan.tokens.size()),
          .token_count = count + drafts,
          .start = start,
          .drafts = drafts,
          .sample = end >= s.prefill_end && s.known_tokens() + s.unresolved < s.length_max,
          .prompt_logprobs =
              s.wants_prompt_logprobs && start < s.prompt_tokens() && end > s.prompt_logprobs_done};
  if (row.sample && config_.draft_tokens_max > 0) row.propose = DraftsWanted(s);
  for (int32_t p = start; p < end; ++p) plan.tokens.push_back(s.token(p));
  plan.tokens.insert(plan.tokens.end(), s.drafts.begin(), s.drafts.begin() + drafts);
  plan.rows.push_back(row);
  part.step.rows.push_back({&s, start, end, drafts, row.sample, row.prompt_logprobs});
  s.planned = end + drafts;
  s.computed += row.token_count;
  s.sampled_rows += row.sample;
  s.unresolved += row.sample;
  ++s.rows_in_flight;
  return true;
}

}  // namespace braid
