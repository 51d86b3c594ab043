// The next step: decode rows, prefill chunks and page moves under a token budget, and who loses
// its blocks when there are too few. Engine thread.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "scheduler/admission/admission_control.h"
#include "scheduler/dp_rank.h"
#include "scheduler/life_cycle/life_cycle.h"
#include "scheduler/moves/page_moves.h"
#include "scheduler/plan.h"
#include "scheduler/planning/draft_trade.h"
#include "scheduler/planning/step_cost.h"

namespace braid {

class StepPlanner {
 public:
  // All five outlive it.
  StepPlanner(const SchedulerConfig& config, DpRanks& ranks, AdmissionControl& admission,
              PageMoves& moves, LifeCycle& life_cycle);

  // The next step's work; empty when nothing can run. At most one other step is in flight.
  Plan Next();
  // The rows of the oldest step in flight, which is over; valid until the next call.
  const std::vector<RowInFlight>& TakeStep(const StepDone& done);
  bool in_flight() const { return !steps_.empty(); }

  struct Counts {
    int64_t steps = 0, prefill_tokens = 0, decode_rows = 0;
    int64_t drafts = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Step {
    StepId id;
    std::vector<RowInFlight> rows;
    int32_t prefill_tokens = 0;
    int32_t decode_tokens = 0;  // drafts included
  };
  // What one rank has of the plan being made.
  struct Part {
    Plan plan;
    Step step;
  };

  void Clear();
  Plan Joined();
  void PlanDecodes(DpRank& rank);
  void PlanDecode(Sequence& s);
  int32_t DraftTokens(const Sequence& s);
  std::array<int8_t, kDraftSources> DraftsWanted(const Sequence& s) const;
  void PlanMove(Sequence& s, Place place, Direction direction);
  void PlanPrefills(DpRankId rank);
  int32_t PrefillBudget(int32_t planned) const;
  int32_t PlanChunk(Sequence& s, int32_t budget, int32_t least);
  bool AddRow(Sequence& s, int32_t count, int32_t drafts = 0);
  bool Cover(Sequence& s, int32_t start, int32_t end);
  template <class F>
  bool CoverBy(Sequence& s, F cover);
  bool PreemptFor(Sequence& s);
  Sequence& Victim(const DpRank& rank) const;

  const SchedulerConfig& config_;
  DpRanks& ranks_;
  AdmissionControl& admission_;
  PageMoves& moves_;
  LifeCycle& life_cycle_;
  const bool has_state_;
  StepCost cost_;
  std::deque<Step> steps_;  // in flight, oldest first
  Step done_;               // the last that came back; its memory is used again
  IdVector<DpRankId, Part> parts_;
  int32_t decode_rows_ = 0;           // in the plan being made
  int32_t draft_budget_ = 0;          // drafts that its rank may still have in it
  DraftTrade trade_;                  // what they bring there
  std::vector<TableChange> changes_;  // scratch
  std::vector<Sequence*> prefills_;   // scratch
  Counts counts_;
};

}  // namespace braid
