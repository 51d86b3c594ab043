// What ranks carry out of a common plan, and the results that they give each other.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "comm/communicator.h"
#include "runtime/experts/expert_mover.h"
#include "scheduler/event.h"
#include "scheduler/plan.h"

namespace braid {

// What of a plan is a data-parallel rank's, in slots that count from 0. Its rows' tokens stay where
// they are, and so do all moves: movers know whose they are, and count the ends of others' moves.
Plan PlanOf(Plan plan, int32_t dp_rank, int32_t slots);

// How tokens come to the ranks that have their experts (ops::Ranks::parcel_rows).
enum class DispatchForm : uint8_t { kAuto, kThroughput, kLatency };
struct DispatchRule {
  DispatchForm form = DispatchForm::kAuto;
  int32_t parcel_rows_max = 64;  // of kLatency: tokens beyond that find no room at first
};
// With so many tokens of a rank and fewer, kAuto sends parcels.
inline constexpr int32_t kParcelTokensMost = 16;

// The rows of a parcel in the step of a plan of all ranks, 0: rows are counted. All ranks know the
// plan, so all choose the same. `slots` are those of a data-parallel rank, which has tp ranks.
int32_t ParcelRowsOf(const DispatchRule& rule, const Plan& plan, int32_t slots, int32_t tp);

// Of the data-parallel rank that has most.
int32_t TokensOfTheFullest(const Plan& plan, int32_t slots);

// What each rank tells the others at the end of a step before its results.
struct RankWord {
  uint64_t result_bytes = 0;  // filled in by Share
  int32_t halves_from = 0;    // OverlapRule::tokens_least; the first rank's counts
  MoveVote vote = MoveVote::kBusy;
};

class ResultExchange {
 public:
  // Every rank calls it at the end of a step. `out`, of a rank that `has_results`, becomes that of
  // all ranks, of so many rows.
  Status Share(Communicator& all, bool has_results, RankWord own, size_t rows, StepDone& out);
  int32_t halves_from() const { return words_[0].halves_from; }
  // Of all ranks, in this step.
  const std::vector<MoveVote>& votes() const { return votes_; }

 private:
  std::string sent_, received_;  // results, as records
  std::vector<RankWord> words_;  // of all ranks, in this step
  std::vector<MoveVote> votes_;
};

}  // namespace braid
