// A word of each rank with the size of its results, then the results.
#include "runtime/rank_results.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/check.h"
#include "base/math.h"
#include "scheduler/event_codec.h"

namespace braid {

Plan PlanOf(Plan plan, int32_t dp_rank, int32_t slots) {
  const auto others = [&](SlotId slot) { return slot.value / slots != dp_rank; };
  const auto keep = [&](auto& items) {
    std::erase_if(items, [&](const auto& item) { return others(item.slot); });
    for (auto& item : items) item.slot = SlotId(item.slot.value - dp_rank * slots);
  };
  std::erase_if(plan.freed, [&](const FreedBlock& f) { return f.dp_rank != DpRankId(dp_rank); });
  keep(plan.admissions);
  keep(plan.tables);
  keep(plan.rows);
  std::erase_if(plan.released, others);
  for (SlotId& slot : plan.released) slot = SlotId(slot.value - dp_rank * slots);
  return plan;
}

int32_t TokensOfTheFullest(const Plan& plan, int32_t slots) {
  int32_t most = 0, tokens = 0, dp_rank = -1;
  for (const Row& row : plan.rows) {
    if (row.slot.value / slots != dp_rank) tokens = 0;
    dp_rank = row.slot.value / slots;
    tokens += row.token_count;
    most = std::max(most, tokens);
  }
  return most;
}

int32_t ParcelRowsOf(const DispatchRule& rule, const Plan& plan, int32_t slots, int32_t tp) {
  if (rule.form == DispatchForm::kThroughput) return 0;
  // A data-parallel rank's ranks make the sums of a part of its tokens each.
  const int32_t of_a_rank =
      std::max(1, static_cast<int32_t>(CeilDiv(TokensOfTheFullest(plan, slots), tp)));
  if (rule.form == DispatchForm::kAuto && of_a_rank > kParcelTokensMost) return 0;
  return std::min(of_a_rank, rule.parcel_rows_max);
}

Status ResultExchange::Share(Communicator& all, bool has_results, RankWord own, size_t rows,
                             StepDone& out) {
  sent_.clear();
  if (has_results) AppendRecord(Event(out), sent_);
  const auto count = static_cast<size_t>(all.size());
  words_.resize(count);
  own.result_bytes = sent_.size();
  RETURN_IF_ERROR(
      all.AllGather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(words_))));
  uint64_t bytes = 0;
  for (const RankWord& word : words_) bytes += word.result_bytes;
  received_.resize(bytes);
  std::vector<MutableBytes> places;
  size_t at = 0;
  for (const RankWord& word : words_) {
    places.push_back(std::as_writable_bytes(std::span(received_).subspan(at, word.result_bytes)));
    at += word.result_bytes;
  }
  votes_.clear();
  for (const RankWord& word : words_) votes_.push_back(word.vote);
  RETURN_IF_ERROR(all.AllGatherV(std::as_bytes(std::span(sent_)), places));
  out.rows.clear();
  RecordReader records(received_);
  while (true) {
    ASSIGN_OR_RETURN(auto record, records.Next());
    if (!record) break;
    auto& of_rank = std::get<StepDone>(std::get<Event>(*record)).rows;
    std::move(of_rank.begin(), of_rank.end(), std::back_inserter(out.rows));
  }
  CHECK(out.rows.size() == rows, "{} results of {} rows", out.rows.size(), rows);
  return {};
}

}  // namespace braid
