// A row's drafts come from the first source that has some.
#include "runtime/drafts/proposals.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/ranks.h"

namespace braid {
namespace {

int32_t Wanted(const Row& row, const RowResult& result, DraftSource source) {
  const bool wants = result.token >= 0 && result.drafts.empty();
  return wants ? row.propose[static_cast<size_t>(source)] : 0;
}

}  // namespace

Proposals::Proposals(const Parts& parts) : parts_(parts) {
  if (parts.draft_tokens_max > 0 && parts.samples) {
    lookup_ = std::make_unique<LookupDrafter>(parts.running_max, parts.context_tokens_max);
  }
  if (parts.spec.draft && parts.spec.draft->used) {
    head_ =
        std::make_unique<HeadDrafter>(HeadDrafter::Parts{.spec = parts.spec,
                                                         .weights = parts.weights,
                                                         .cache = parts.cache,
                                                         .kv_dtype = parts.kv_dtype,
                                                         .decoder = parts.decoder,
                                                         .sampler = parts.sampler,
                                                         .slots = parts.running_max,
                                                         .pass_tokens_max = parts.step_tokens_max,
                                                         .dp_ranks = parts.dp_ranks,
                                                         .home = parts.home});
    if (parts.rehearsal != nullptr) {
      rehearsed_ = std::make_unique<RehearsedDrafter>(*head_, *parts.rehearsal);
    }
  }
}

void Proposals::Measure(const ops::OpContext& context) {
  if (head_ != nullptr) head_->Measure(context);
}

void Proposals::Reset(SlotId id) {
  if (lookup_ != nullptr) lookup_->Reset(id);
  if (parts_.stand_in != nullptr) parts_.stand_in->Reset(id);
  if (head_ != nullptr) head_->Reset(id);
}

void Proposals::OfOneRank(const DraftRows& step, std::span<RowResult> results) {
  if (parts_.draft_tokens_max == 0) return;
  OfGrammars(step, results);
  if (lookup_ != nullptr) Ask(*lookup_, DraftSource::kLookup, step, results);
  if (parts_.stand_in != nullptr) Ask(*parts_.stand_in, DraftSource::kHead, step, results);
}

void Proposals::OfTheHead(const DraftRows& step, std::span<RowResult> results) {
  if (parts_.draft_tokens_max == 0 || head_ == nullptr) return;
  const TraceSpan span(parts_.trace, "draft", static_cast<int64_t>(step.plan.rows.size()));
  Drafter& head = rehearsed_ != nullptr ? static_cast<Drafter&>(*rehearsed_) : *head_;
  Ask(head, DraftSource::kHead, step, results.subspan(step.first_row, step.plan.rows.size()));
  if (parts_.dp_ranks == 1) return;  // the ranks of a group know what it proposed
  ops::Ranks& ranks = *step.context.ranks;
  if (ranks.status.ok()) ranks.status = Tell(step, results);
}

void Proposals::OfGrammars(const DraftRows& step, std::span<RowResult> results) {
  for (size_t r = 0; r < step.plan.rows.size(); ++r) {
    const Row& row = step.plan.rows[r];
    const int32_t most = row.propose[static_cast<size_t>(DraftSource::kGrammar)];
    const Slot& slot = parts_.slots[row.slot];
    RowResult& result = results[r];
    if (most == 0 || result.token < 0 || slot.grammar.empty()) continue;
    parts_.constraints.Forced(row.slot, slot, most, result.drafts);
    result.drafts_of = DraftSource::kGrammar;
  }
}

// The drafter's proposals for the rows that want some and have none. It sees all rows but those
// with an error.
void Proposals::Ask(Drafter& drafter, DraftSource source, const DraftRows& step,
                    std::span<RowResult> results) {
  wishes_.clear();
  for (size_t r = 0; r < step.plan.rows.size(); ++r) {
    const Row& row = step.plan.rows[r];
    RowResult& result = results[r];
    if (!result.error.empty()) continue;
    const int32_t most = Wanted(row, result, source);
    if (most > 0) result.drafts_of = source;
    wishes_.push_back({.id = row.slot,
                       .slot = &parts_.slots[row.slot],
                       .begin = row.start,
                       .end = row.start + row.token_count - row.drafts + result.accepted,
                       .state = step.rows.spans[r].token_begin,
                       .count = most,
                       .drafts = &result.drafts});
  }
  drafter.Propose({step.context, step.states, wishes_, step.status});
}

// The head's drafts of each data-parallel rank to all. Sizes are those of the plan, which all know.
Status Proposals::Tell(const DraftRows& step, std::span<RowResult> results) {
  Communicator& all = *step.context.ranks->all;
  const auto record = static_cast<size_t>(1 + parts_.draft_tokens_max);
  told_.assign(results.size() * record, -1);
  for (size_t r = 0; r < step.plan.rows.size(); ++r) {
    const RowResult& result = results[step.first_row + r];
    if (result.drafts_of != DraftSource::kHead) continue;
    int32_t* to = told_.data() + (step.first_row + r) * record;
    *to++ = static_cast<int32_t>(result.drafts.size());
    std::ranges::copy(result.drafts, to);
  }
  const auto tp = static_cast<size_t>(all.size() / parts_.dp_ranks);
  std::vector<MutableBytes> places(static_cast<size_t>(all.size()));
  size_t first = 0;
  for (size_t group = 0; group < step.plan.dp_rank_rows.size(); ++group) {
    const auto rows = static_cast<size_t>(step.plan.dp_rank_rows[group]);
    places[group * tp] =
        std::as_writable_bytes(std::span(told_).subspan(first * record, rows * record));
    first += rows;
  }
  CHECK(first == results.size(), "{} of {} rows", first, results.size());
  RETURN_IF_ERROR(all.AllGatherV(places[static_cast<size_t>(all.rank())], places));
  for (size_t r = 0; r < results.size(); ++r) {
    const int32_t* from = told_.data() + r * record;
    if (*from < 0) continue;
    results[r].drafts_of = DraftSource::kHead;
    results[r].drafts.assign(from + 1, from + 1 + *from);
  }
  return {};
}

}  // namespace braid
