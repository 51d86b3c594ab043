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
// they are.
Plan PlanOf(Plan plan, int32_t dp_rank, int32_t slots);

class ResultExchange {
 public:
  // Every rank calls it at the end of a step. `out`, of a rank that `has_results`, becomes that of
  // all ranks, of so many rows.
  Status Share(Communicator& all, bool has_results, MoveVote vote, size_t rows, StepDone& out);
  // Of all ranks, in this step.
  const std::vector<MoveVote>& votes() const { return votes_; }

 private:
  std::string sent_, received_;  // results, as records
  std::vector<MoveVote> votes_;
};

}  // namespace braid
