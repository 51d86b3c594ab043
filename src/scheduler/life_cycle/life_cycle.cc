// See the header.
#include "scheduler/life_cycle/life_cycle.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "scheduler/limits.h"

namespace braid {
namespace {

// Whether a token that comes next ends the answer. A prompt that is computed for another engine has
// none: its token leaves with its pages.
bool Stops(const Sequence& s, TokenId token) {
  const StopParams& stop = s.request.stop;
  return s.request.role != RequestRole::kPrefill &&
         static_cast<int32_t>(s.output.size()) >= stop.new_tokens_min &&
         std::binary_search(stop.stop_tokens.begin(), stop.stop_tokens.end(), token);
}

// Of what came from a tier, with so many blocks of keys and values, whose parts are the first.
int32_t TokensFromDisk(const PagesMoved& event, int32_t blocks) {
  if (event.in_memory.empty()) return std::numeric_limits<int32_t>::max();
  const auto in_memory =
      std::ranges::count_if(event.in_memory, [&](int32_t part) { return part < blocks; });
  return (blocks - static_cast<int32_t>(in_memory)) * kBlockTokens;
}

Output Refusal(const Request& request, const Error& error) {
  Output output{.id = request.id};
  output.finish = FinishReason::kError;
  output.error_code = error.code;
  output.error = error.message;
  output.prompt_tokens = static_cast<int32_t>(request.prompt.size());
  return output;
}

}  // namespace

void LifeCycle::Submit(const Request& request) {
  Status status = CheckRequest(config_, request);
  if (status.ok() && admission_.queue().size() >= config_.waiting_max) {
    status = Error{ErrorCode::kExhausted,
                   fmt::format("the queue is full: {} requests wait, and at most {} may",
                               admission_.queue().size(), config_.waiting_max)};
  }
  if (!status.ok()) {
    refused_.push_back(Refusal(request, status.error()));
    return;
  }
  auto [at, inserted] =
      sequences_.emplace(request.id, std::make_unique<Sequence>(request, config_.cache));
  CHECK(inserted, "request id {} is used twice", request.id.value);
  Sequence& s = *at->second;
  s.arrival = arrivals_++;
  s.length_max = LengthMax(config_, request);
  s.stored_max = StoredMax(request, s.length_max);
  s.receives = request.role == RequestRole::kDecode;
  s.acceptance = acceptance_;
  s.ranks_unready = request.grammar.empty() ? 0 : config_.grammar_ranks;
  admission_.Enqueue(s);
}

void LifeCycle::Abort(RequestId id, FinishReason reason) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end() || at->second->Is<Finished>()) return;
  Finish(*at->second, reason);
}

void LifeCycle::AbortAll() {
  for (const auto& [id, sequence] : sequences_) Abort(id, FinishReason::kAbort);
}

void LifeCycle::FailRunning(const std::string& error) {
  for (const auto& [id, sequence] : sequences_) {
    Sequence& s = *sequence;
    if (!s.dp_rank.valid()) continue;  // it has none
    s.error = error;
    s.error_code = ErrorCode::kUnavailable;
    Finish(s, FinishReason::kError);
  }
}

void LifeCycle::CompleteRow(const RowInFlight& planned, const RowResult& result) {
  RowInFlight row = planned;
  Sequence& s = *row.sequence;
  CHECK(s.id == result.request, "a result for request {} came in the place of {}",
        result.request.value, s.id.value);
  --s.rows_in_flight;
  s.unresolved -= row.sample;
  if (s.Is<Finished>()) {  // finished while this row was in flight; discard its result
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
  if (row.drafts > 0) {  // rejected drafts count as never computed
    CHECK(result.accepted >= 0 && result.accepted <= row.drafts, "request {}: {} of {} drafts",
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
    --ranks_[s.dp_rank].draining;
    ReleaseBlocks(s);
    admission_.Enqueue(s);
  }
}

// Other requests may use the blocks that these tokens completed from now on.
void LifeCycle::PublishBlocks(Sequence& s, int32_t start, int32_t end) {
  const auto follows = [&](const Sequence* f) { return f->awaited == end; };
  Snapshot snapshot = Snapshot::kPassing;
  if (end == s.branch_at || std::any_of(s.followers.begin(), s.followers.end(), follows)) {
    snapshot = Snapshot::kBranch;
  } else if (end / kBlockTokens * kBlockTokens == ResumedAt(s.prompt_tokens())) {
    snapshot = Snapshot::kPromptEnd;
  }
  s.blocks.Publish(start, end, s.tokens(), snapshot, ranks_[s.dp_rank].cache);
  admission_.WakeFollowers(s, s.blocks.published());
}

// The sequence runs no more, whatever comes next.
void LifeCycle::LeaveRunning(Sequence& s) {
  DpRank& rank = ranks_[s.dp_rank];
  rank.running.erase(std::lower_bound(rank.running.begin(), rank.running.end(), &s, ByPriority{}));
  if (rank.starving == s.id) rank.starving = RequestId();
  admission_.WakeFollowers(s, s.prefill_end);
}

// A row with drafts may reach from inside a block into the next one, as a prompt's chunk may.
void LifeCycle::RetireStates(Sequence& s, int32_t end) {
  const bool single = s.Is<Decoding>() && config_.draft_tokens_max == 0;
  s.blocks.RetireStates(end,
                        single ? StateBlocksDecode(s.stored_max) : StateBlocksPrefill(s.stored_max),
                        ranks_[s.dp_rank].cache);
}

// An accepted draft may end the answer; the tokens after it are discarded.
void LifeCycle::TakeAccepted(Sequence& s, const RowInFlight& row, const RowResult& result) {
  int32_t taken = 0;
  for (; taken < result.accepted && !s.Is<Finished>(); ++taken) {
    const auto at = static_cast<size_t>(taken);
    const bool described = at < result.accepted_logprobs.size();
    TakeToken(s, s.drafts[at], described ? result.accepted_logprobs[at] : TokenLogprob());
  }
  s.draft_counts.Count(row.drafts, taken);
  counts_.drafts.Count(row.drafts, taken);
}

// What came is compared with what was proposed, also where the row had less of it.
void LifeCycle::LearnAcceptance(Sequence& s, const RowResult& result) {
  constexpr int32_t kOfRequest = 8, kOfAll = 64;
  const auto source = static_cast<size_t>(s.drafts_of);
  const auto accepted = static_cast<size_t>(result.accepted);
  for (size_t place = 0; place < s.drafts.size() && place <= accepted; ++place) {
    const bool right = place < accepted || s.drafts[place] == result.token;
    s.acceptance[source].Note(place, right, kOfRequest);
    acceptance_[source].Note(place, right, kOfAll);
  }
}

void LifeCycle::TakeTokens(Sequence& s, const RowInFlight& row, const RowResult& result) {
  if (config_.draft_adapt) LearnAcceptance(s, result);
  if (row.drafts > 0) TakeAccepted(s, row, result);
  if (!s.Is<Finished>()) TakeToken(s, result.token, result.logprob);
  if (config_.draft_tokens_max == 0) return;
  s.drafts.clear();
  s.drafts_of = result.drafts_of;
  if (s.Is<Decoding>()) s.drafts = result.drafts;
}

void LifeCycle::TakeToken(Sequence& s, TokenId token, const TokenLogprob& logprob) {
  CHECK(token >= 0 && token < config_.vocabulary, "request {} was given token {}", s.id.value,
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

// A replayed sequence passes positions that were reported before.
void LifeCycle::TakePromptLogprobs(Sequence& s, const RowInFlight& row, const RowResult& result) {
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

MoveId LifeCycle::BeginMove(Sequence& s, std::vector<KnownPart> parts) {
  s.move = moves_.Begin(s, std::move(parts));
  ++s.rows_in_flight;
  return s.move;
}

void LifeCycle::CompleteMove(const PagesMoved& event) {
  const std::optional<Sequence*> whose = moves_.End(event);
  if (!whose || *whose == nullptr) return;
  Sequence& s = **whose;
  s.move = MoveId();
  --s.rows_in_flight;
  ++counts_.moves;
  counts_.moves_failed += !event.error.empty();
  if (s.Is<Finished>()) {  // aborted during the move, which uses its blocks no more
    ReleaseBlocks(s);
    EraseIfGone(s);
  } else if (s.Is<Receiving>()) {
    s.arriving > 0 ? TakePrefix(s, event) : TakePages(s, event);
  } else {
    s.error = event.error;
    Finish(s, event.error.empty() ? FinishReason::kSent : FinishReason::kError);
  }
}

void LifeCycle::TakeGrammar(const GrammarReady& event) {
  const auto at = sequences_.find(event.request);
  if (at == sequences_.end() || at->second->ranks_unready == 0) return;  // it has ended
  Sequence& s = *at->second;
  if (event.error.empty()) return admission_.CountReady(s);
  s.error = event.error;
  s.error_code = event.error_code;
  Finish(s, FinishReason::kError);
}

// When the pages of a prompt did not arrive, or came without its first token, the sequence waits
// again and computes the prompt here.
void LifeCycle::TakePages(Sequence& s, const PagesMoved& event) {
  s.receives = false;
  const bool here = event.error.empty() && event.token >= 0 && event.token < config_.vocabulary;
  admission_.CountReceived(s, here);
  if (!here) return LoseBlocks(s);
  const int32_t start = s.planned;
  s.planned = s.prompt_tokens();
  Move(s.phase, PagesArrived{});
  Publish(s, start, s.planned);
  RetireStates(s, s.planned);
  TakeToken(s, event.token, event.logprob);
}

// The tokens before `arriving` are in place now; the rest is computed, or comes from another
// engine. When not all of their pages came, the sequence waits again; what was lost is known by
// then and will not be asked for.
void LifeCycle::TakePrefix(Sequence& s, const PagesMoved& event) {
  if (!event.error.empty()) return LoseBlocks(s);
  const int32_t end = std::exchange(s.arriving, 0);
  admission_.CountArrived(s, end,
                          TokensFromDisk(event, (end - s.blocks.published()) / kBlockTokens));
  const int32_t start = std::exchange(s.planned, end);
  if (!s.receives) Move(s.phase, PrefixArrived{});
  Publish(s, start, end);
  s.blocks.MarkResumed(ranks_[s.dp_rank].cache);
  RetireStates(s, end);
}

void LifeCycle::LoseBlocks(Sequence& s) {
  LeaveRunning(s);
  Move(s.phase, BlocksLost{});
  ReleaseBlocks(s);
  admission_.Enqueue(s);
}

void LifeCycle::Finish(Sequence& s, FinishReason reason) {
  if (s.waiting) {
    admission_.Withdraw(s);
  } else if (s.Is<Preempted>()) {
    --ranks_[s.dp_rank].draining;
  } else {
    LeaveRunning(s);
  }
  Move(s.phase, Ended{reason});
  ++counts_.finished;
  Changed(s);
  if (s.rows_in_flight == 0) ReleaseBlocks(s);
}

void LifeCycle::Preempt(Sequence& s) {
  DpRank& rank = ranks_[s.dp_rank];
  LeaveRunning(s);
  Move(s.phase, BlocksLost{});
  ++s.preemptions;
  ++counts_.preemptions;
  rank.preempted = true;
  if (s.rows_in_flight > 0) {
    ++rank.draining;
    return;
  }
  ReleaseBlocks(s);
  admission_.Enqueue(s);
}

// Returns blocks and slot; no row of the sequence is in flight.
void LifeCycle::ReleaseBlocks(Sequence& s) {
  CHECK(s.rows_in_flight == 0 && s.unresolved == 0);
  s.planned = 0;
  s.drafts.clear();
  if (!s.dp_rank.valid()) return;  // never admitted
  DpRank& rank = ranks_[s.dp_rank];
  s.arriving = 0;
  if (config_.tier && s.blocks.leaf().valid()) moves_.Rest(s.dp_rank, s.blocks.leaf());
  s.blocks.ReleaseAll(rank.cache);
  admission_.ChargeComputed(s);
  s.dp_rank = DpRankId();
  rank.free_slots.Insert(s.slot.value % config_.running_max);
  if (s.announced) departed_.push_back(s.slot);
  s.announced = false;
  s.slot = SlotId();
}

void LifeCycle::Announce(Sequence& s) {
  s.announced = true;
  std::erase(departed_, s.slot);
}

void LifeCycle::Changed(Sequence& s) {
  if (std::exchange(s.changed, true)) return;
  changed_.push_back(&s);
}

void LifeCycle::EraseIfGone(Sequence& s) {
  if (s.Is<Finished>() && s.rows_in_flight == 0 && !s.changed) sequences_.erase(s.id);
}

Output LifeCycle::MakeOutput(Sequence& s) {
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
  output.drafts = s.draft_counts;
  return output;
}

std::vector<Output>& LifeCycle::TakeOutputs() {
  outputs_.clear();
  std::swap(outputs_, refused_);
  for (Sequence* s : changed_) {
    outputs_.push_back(MakeOutput(*s));
    s->changed = false;
    EraseIfGone(*s);
  }
  changed_.clear();
  return outputs_;
}

}  // namespace braid
