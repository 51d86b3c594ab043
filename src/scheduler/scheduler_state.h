// The scheduler's parts and how they are connected: admission decides who runs, step planning what
// runs next, the life cycle what becomes of a request. Each knows only those before it. Engine
// thread.
#pragma once

#include "scheduler/admission/admission_control.h"
#include "scheduler/dp_rank.h"
#include "scheduler/life_cycle/life_cycle.h"
#include "scheduler/moves/page_moves.h"
#include "scheduler/planning/step_planner.h"
#include "scheduler/scheduler.h"

namespace braid {

struct Scheduler::State {
  explicit State(const SchedulerConfig& c)
      : config(c),
        ranks(MakeRanks(config, tier)),
        admission(config, ranks),
        moves(config, ranks, tier),
        life_cycle(config, ranks, admission, moves),
        planner(config, ranks, admission, moves, life_cycle) {}

  void On(const Submit& event) { life_cycle.Submit(event.request); }
  void On(const Abort& event) { life_cycle.Abort(event.id, event.reason); }
  void On(const StepDone& event);
  void On(const PagesMoved& event) { life_cycle.CompleteMove(event); }
  void On(const PagesKnown& event);
  void On(const GrammarReady& event) { life_cycle.TakeGrammar(event); }
  void On(const FlushCache& event);
  void On(const ResetCache& event);
  void On(const ArenasLost& event);
  void On(const PauseRequested& event) { paused = event.paused; }
  void On(const StopRequested& event);
  void On(const MoveExperts& event) { experts = event.slots; }
  void On(const Tick&) {}  // no rule reads time; logs carry it

  bool Idle() const;
  bool StepsOrMovesInFlight() const { return planner.in_flight() || moves.under_way() > 0; }

  Status AuditBlocks(DpRankId rank) const;
  Status AuditPins(DpRankId rank) const;
  Status AuditSlots(DpRankId rank) const;
  Status AuditFollowers() const;

  const SchedulerConfig config;
  PageDirectory tier;
  DpRanks ranks;
  AdmissionControl admission;
  PageMoves moves;
  LifeCycle life_cycle;
  StepPlanner planner;
  bool paused = false, stopping = false;
  std::vector<std::vector<int32_t>> experts;  // of the next plan with rows
};

}  // namespace braid
