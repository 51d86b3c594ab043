// Events in, outputs out, and the life of a sequence between them. Plans are made in planning.cc.
// Engine thread; no clock, no randomness, nothing iterated in an order that memory addresses
// decide.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler_state.h"

namespace braid {

void Scheduler::State::On(const Submit& event) {
  const Request& request = event.request;
  Status status = CheckRequest(config, request);
  if (status.ok() && queue.size() >= config.waiting_max) {
    status = Error{ErrorCode::kExhausted,
                   fmt::format("{} requests wait already, no more than that may", queue.size())};
  }
  if (!status.ok()) {
    Output output{.id = request.id};
    output.finish = FinishReason::kError;
    output.error_code = status.error().code;
    output.error = status.error().message;
    output.prompt_tokens = static_cast<int32_t>(request.prompt.size());
    refused.push_back(std::move(output));
    return;
  }
  auto [at, inserted] =
      sequences.emplace(request.id, std::make_unique<Sequence>(request, config.cache));
  CHECK(inserted, "request id {} is used twice", request.id.value);
  Sequence& s = *at->second;
  s.arrival = arrivals++;
  s.length_max = LengthMax(config, request);
  s.stored_max = StoredMax(request, s.length_max);
  s.receives = request.role == RequestRole::kDecode;
  Enqueue(s);
}

void Scheduler::State::On(const Abort& event) {
  const auto at = sequences.find(event.id);
  if (at == sequences.end() || at->second->Is<Finished>()) return;
  Finish(*at->second, event.reason);
}

void Scheduler::State::On(const StepDone& event) {
  CHECK(!steps.empty() && steps.front().id == event.step, "step {} was not the oldest in flight",
        event.step.value);
  Step& step = steps.front();
  CHECK(step.rows.size() == event.rows.size(), "step {} has {} rows, {} came back",
        event.step.value, step.rows.size(), event.rows.size());
  cost.Learn(event.duration_us, step.prefill_tokens);
  for (size_t i = 0; i < step.rows.size(); ++i) CompleteRow(step.rows[i], event.rows[i]);
  landed = std::move(step);
  steps.pop_front();
}

void Scheduler::State::On(const ResetCache&) {
  CHECK(Quiet() && queue.empty() && steps.empty() && transfers == 0,
        "the cache is reset while requests are alive");
  ranks.clear();
  for (int32_t i = 0; i < config.dp_ranks; ++i) ranks.emplace_back(config);
  blocked = RequestId();
}

void Scheduler::State::CompleteRow(const RowInFlight& planned, const RowResult& result) {
  RowInFlight row = planned;
  Sequence& s = *row.sequence;
  CHECK(s.id == result.request, "a result for request {} came in the place of {}",
        result.request.value, s.id.value);
  --s.rows_in_flight;
  s.unresolved -= row.sample;
  if (s.Is<Finished>()) {  // found while this row was on its way: what it brought is not wanted
    if (s.rows_in_flight == 0) ReleaseBlocks(s);
    EraseIfGone(s);
    return;
  }
  if (!result.error.empty()) {
    s.error = result.error;
    s.error_code = result.error_code;
    Finish(s, FinishReason::kError);
    return;
  }
  if (row.drafts > 0) {  // what was refused counts as never computed
    CHECK(result.accepted >= 0 && result.accepted <= row.drafts, "request {}: {} of {} guesses",
          s.id.value, result.accepted, row.drafts);
    row.end += result.accepted;
    s.planned = row.end;
  }
  Publish(s, row.start, row.end);
  RetireStates(s, row.end);
  if (row.prompt_logprobs) TakePromptLogprobs(s, row, result);
  if (row.sample) {
    TakeTokens(s, row, result);
  } else if (row.end >= s.prefill_end && s.known_tokens() == s.length_max) {
    Finish(s, FinishReason::kLength);  // nothing was to be sampled
  }
  if (s.Is<Preempted>() && s.rows_in_flight == 0) {
    --RankOf(s).draining;
    ReleaseBlocks(s);
    Enqueue(s);
  }
}

// What was completed may be used by others from now on.
void Scheduler::State::PublishBlocks(Sequence& s, int32_t start, int32_t end) {
  const auto follows = [&](const Sequence* f) { return f->awaited == end; };
  Snapshot snapshot = Snapshot::kPassing;
  if (end == s.branch_at || std::any_of(s.followers.begin(), s.followers.end(), follows)) {
    snapshot = Snapshot::kBranch;
  } else if (end / kBlockTokens * kBlockTokens == ResumedAt(s.prompt_tokens())) {
    snapshot = Snapshot::kPromptEnd;
  }
  s.blocks.Publish(start, end, s.tokens(), snapshot, RankOf(s).cache);
  WakeFollowers(s, s.blocks.published());
}

// It does not run any more, whatever comes next.
void Scheduler::State::LeaveRunning(Sequence& s) {
  Rank& rank = RankOf(s);
  rank.running.erase(std::lower_bound(rank.running.begin(), rank.running.end(), &s, ByPriority{}));
  if (rank.starving == s.id) rank.starving = RequestId();
  WakeFollowers(s, s.prefill_end);
}

// A row with guesses may reach from inside a block into the next one, as a prompt's chunk may.
void Scheduler::State::RetireStates(Sequence& s, int32_t end) {
  const bool single = s.Is<Decoding>() && config.draft_tokens_max == 0;
  s.blocks.RetireStates(end,
                        single ? StateBlocksDecode(s.stored_max) : StateBlocksPrefill(s.stored_max),
                        RankOf(s).cache);
}

// An end may be among the guesses that were right; what comes after it is not wanted.
void Scheduler::State::TakeAccepted(Sequence& s, const RowResult& result) {
  for (int32_t i = 0; i < result.accepted && !s.Is<Finished>(); ++i) {
    const auto at = static_cast<size_t>(i);
    const bool described = at < result.accepted_logprobs.size();
    TakeToken(s, s.drafts[at], described ? result.accepted_logprobs[at] : TokenLogprob());
    ++drafts_accepted;
    ++decode_tokens;
  }
}

void Scheduler::State::TakeTokens(Sequence& s, const RowInFlight& row, const RowResult& result) {
  if (row.drafts > 0) TakeAccepted(s, result);
  if (!s.Is<Finished>()) TakeToken(s, result.token, result.logprob);
  if (config.draft_tokens_max == 0) return;
  s.drafts.clear();
  if (s.Is<Decoding>()) s.drafts = result.drafts;
}

// Whether a token that comes next ends the answer.
bool Scheduler::State::Stops(const Sequence& s, TokenId token) {
  const StopParams& stop = s.request.stop;
  return static_cast<int32_t>(s.output.size()) >= stop.new_tokens_min &&
         std::binary_search(stop.stop_tokens.begin(), stop.stop_tokens.end(), token);
}

void Scheduler::State::TakeToken(Sequence& s, TokenId token, const TokenLogprob& logprob) {
  CHECK(token >= 0 && token < config.vocabulary, "request {} was given token {}", s.id.value,
        token);
  const bool stops = s.may_stop && Stops(s, token);
  s.output.push_back(token);
  if (s.wants_logprobs) s.logprobs.push_back(logprob);
  Changed(s);
  if (stops) {
    Finish(s, FinishReason::kStop);
  } else if (s.known_tokens() == s.length_max) {
    Finish(s, FinishReason::kLength);
  }
}

// The pages of a prompt have left, or arrived, or did not.
void Scheduler::State::On(const TransferDone& event) {
  const auto at = sequences.find(event.request);
  if (at == sequences.end() || !at->second->transferring) return;
  Sequence& s = *at->second;
  s.transferring = false;
  --s.rows_in_flight;
  --transfers;
  ++transfers_done;
  transfers_failed += !event.error.empty();
  if (s.Is<Finished>()) {  // aborted meanwhile: nobody writes to its blocks any more
    ReleaseBlocks(s);
    EraseIfGone(s);
  } else if (s.Is<Receiving>()) {
    Arrive(s, event);
  } else {
    s.error = event.error;
    Finish(s, event.error.empty() ? FinishReason::kSent : FinishReason::kError);
  }
}

// A prompt whose pages did not arrive, or without its token, is computed here when its turn comes
// again.
void Scheduler::State::Arrive(Sequence& s, const TransferDone& event) {
  s.receives = false;
  const bool here = event.error.empty() && event.token >= 0 && event.token < config.vocabulary;
  if (!here) {
    LeaveRunning(s);
    Move(s.phase, BlocksLost{});
    ReleaseBlocks(s);
    Enqueue(s);
    return;
  }
  const int32_t start = s.planned;
  s.planned = s.prompt_tokens();
  Move(s.phase, PagesArrived{});
  Publish(s, start, s.planned);
  RetireStates(s, s.planned);
  TakeToken(s, event.token, event.logprob);
}

// A sequence that is replayed passes positions that were reported before.
void Scheduler::State::TakePromptLogprobs(Sequence& s, const RowInFlight& row,
                                          const RowResult& result) {
  CHECK(static_cast<int32_t>(result.prompt_logprobs.size()) == row.end - row.start,
        "request {}: {} prompt log-probabilities for {} tokens", s.id.value,
        result.prompt_logprobs.size(), row.end - row.start);
  const int32_t end = std::min(row.end, s.prompt_tokens());
  for (int32_t p = std::max(row.start, s.prompt_logprobs_done); p < end; ++p) {
    s.prompt_logprobs.push_back(result.prompt_logprobs[static_cast<size_t>(p - row.start)]);
  }
  s.prompt_logprobs_done = std::max(s.prompt_logprobs_done, end);
  Changed(s);
}

void Scheduler::State::Enqueue(Sequence& s) {
  s.waiting = true;
  queue.Insert(s);
}

void Scheduler::State::Finish(Sequence& s, FinishReason reason) {
  if (s.waiting) {
    if (s.leader != nullptr) Unfollow(s);
    queue.Erase(s);
    s.waiting = false;
  } else if (s.Is<Preempted>()) {
    --RankOf(s).draining;
  } else {
    LeaveRunning(s);
  }
  Move(s.phase, Ended{reason});
  ++finished;
  Changed(s);
  if (s.rows_in_flight == 0) ReleaseBlocks(s);
}

void Scheduler::State::Preempt(Sequence& s) {
  Rank& rank = RankOf(s);
  LeaveRunning(s);
  Move(s.phase, BlocksLost{});
  ++s.preemptions;
  ++preemptions;
  rank.preempted = true;
  if (s.rows_in_flight > 0) {
    ++rank.draining;
    return;
  }
  ReleaseBlocks(s);
  Enqueue(s);
}

// Gives blocks and slot back; no row of the sequence is in flight.
void Scheduler::State::ReleaseBlocks(Sequence& s) {
  CHECK(s.rows_in_flight == 0 && s.unresolved == 0);
  s.planned = 0;
  s.drafts.clear();
  if (s.dp_rank < 0) return;  // never admitted
  Rank& rank = RankOf(s);
  s.blocks.ReleaseAll(rank.cache);
  queue.Charge(s, std::max<int64_t>(std::exchange(s.computed, 0), 0));
  s.dp_rank = -1;
  if (!s.slot.valid()) return;
  rank.free_slots.Insert(s.slot.value % config.running_max);
  if (s.announced) departed.push_back(s.slot);
  s.announced = false;
  s.slot = SlotId();
}

void Scheduler::State::Changed(Sequence& s) {
  if (std::exchange(s.changed, true)) return;
  changed.push_back(&s);
}

void Scheduler::State::EraseIfGone(Sequence& s) {
  if (s.Is<Finished>() && s.rows_in_flight == 0 && !s.changed) sequences.erase(s.id);
}

Output Scheduler::State::MakeOutput(Sequence& s) {
  Output output{.id = s.id};
  output.tokens.assign(s.output.begin() + static_cast<ptrdiff_t>(s.tokens_taken), s.output.end());
  s.tokens_taken = s.output.size();
  output.logprobs = std::exchange(s.logprobs, {});
  output.prompt_logprobs = std::exchange(s.prompt_logprobs, {});
  if (const Finished* end = std::get_if<Finished>(&s.phase)) output.finish = end->reason;
  output.error = s.error;
  output.error_code = s.error_code;
  output.prompt_tokens = s.prompt_tokens();
  output.cached_tokens = s.reuse.tokens;
  output.reuse = s.reuse;
  output.output_tokens = static_cast<int32_t>(s.output.size());
  output.preemptions = s.preemptions;
  return output;
}

Result<Scheduler> Scheduler::Create(const SchedulerConfig& config) {
  RETURN_IF_ERROR(CheckConfig(config));
  return Scheduler(std::make_unique<State>(config));
}

Scheduler::Scheduler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Scheduler::Scheduler(Scheduler&&) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&&) noexcept = default;
Scheduler::~Scheduler() = default;

Status Scheduler::Admissible(const Request& request) const {
  return CheckRequest(state_->config, request);
}

void Scheduler::Apply(const Event& event) {
  std::visit([this](const auto& e) { state_->On(e); }, event);
}

Plan Scheduler::NextPlan() { return state_->Build(); }

std::vector<Output>& Scheduler::TakeOutputs() {
  std::vector<Output>& outputs = state_->outputs;
  outputs.clear();
  std::swap(outputs, state_->refused);
  for (Sequence* s : state_->changed) {
    outputs.push_back(state_->MakeOutput(*s));
    s->changed = false;
    state_->EraseIfGone(*s);
  }
  state_->changed.clear();
  return outputs;
}

bool Scheduler::idle() const {
  return state_->Quiet() && state_->queue.empty() && state_->steps.empty() &&
         state_->transfers == 0;
}

const SchedulerConfig& Scheduler::config() const { return state_->config; }

SchedulerStats Scheduler::stats() const {
  const State& s = *state_;
  SchedulerStats stats{.waiting = s.queue.size(),
                       .waiting_preempted = s.queue.preempted(),
                       .blocks_used = std::vector<int64_t>(s.config.cache.groups.size()),
                       .blocks_cached = std::vector<int64_t>(s.config.cache.groups.size()),
                       .prompt_tokens = s.prompt_tokens,
                       .reused_tokens = s.reused_tokens,
                       .reuse_stops = s.reuse_stops,
                       .lost_tokens = s.lost_tokens,
                       .steps = s.steps_planned,
                       .prefill_tokens = s.prefill_tokens,
                       .decode_tokens = s.decode_tokens,
                       .preemptions = s.preemptions,
                       .finished = s.finished,
                       .drafts = s.drafts_planned,
                       .drafts_accepted = s.drafts_accepted,
                       .transfers = s.transfers_done,
                       .transfers_failed = s.transfers_failed};
  for (const State::Rank& rank : s.ranks) {
    stats.running += static_cast<int32_t>(rank.running.size());
    stats.waiting += rank.draining;
    stats.waiting_preempted += rank.draining;
    stats.pages_total += rank.cache.pool().pages_total();
    stats.pages_used += rank.cache.pool().pages_used();
    stats.pages_cached += rank.cache.pool().pages_cached();
    stats.evictions_full += rank.cache.evictions(GroupKind::kFull);
    stats.evictions_state += rank.cache.evictions(GroupKind::kState);
    for (size_t g = 0; g < s.config.cache.groups.size(); ++g) {
      const GroupId group(static_cast<int32_t>(g));
      stats.blocks_used[g] += rank.cache.pool().blocks_used(group);
      stats.blocks_cached[g] += rank.cache.pool().blocks_cached(group);
    }
  }
  return stats;
}

}  // namespace braid
