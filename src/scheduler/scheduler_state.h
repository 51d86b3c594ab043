// The scheduler's inside, split over scheduler.cc (events in, outputs out) and planning.cc (plans).
// Engine thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "cache/block_pool.h"
#include "cache/id_set.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence.h"

namespace braid {

// Whether the figures make a scheduler; see Scheduler::Create.
Status CheckConfig(const SchedulerConfig& config);
// See Scheduler::Admissible.
Status CheckRequest(const SchedulerConfig& config, const Request& request);
// The longest that a request may get: prompt + output, within the context.
int32_t LengthMax(const SchedulerConfig& config, const Request& request);
// How many of `length_max` tokens need cache.
int32_t StoredMax(const Request& request, int32_t length_max);

struct Scheduler::State {
  explicit State(const SchedulerConfig& c)
      : config(c), pool(config.cache), free_slots(config.running_max) {
    for (int32_t i = 0; i < config.running_max; ++i) free_slots.Insert(i);
    changes.reserve(16);
  }

  struct RowInFlight {
    Sequence* sequence;
    int32_t start;
    int32_t end;
    bool sample;
    bool prompt_logprobs;
  };
  struct Step {
    StepId id;
    std::vector<RowInFlight> rows;
  };

  // Events.
  void On(const Submit& event);
  void On(const Abort& event);
  void On(const StepDone& event);
  void On(const Tick&) {}  // no rule reads time; logs carry it
  void Land(const RowInFlight& row, const RowResult& result);
  void TakeToken(Sequence& s, const RowResult& result);
  void TakePromptLogprobs(Sequence& s, const RowInFlight& row, const RowResult& result);

  // Life.
  void Enqueue(Sequence& s);
  void Finish(Sequence& s, FinishReason reason);
  void Preempt(Sequence& s);
  void Vacate(Sequence& s);
  void Changed(Sequence& s);
  void EraseIfGone(Sequence& s);
  Output MakeOutput(Sequence& s);

  // Plans.
  Plan Build();
  void PlanDecodes(Plan& plan);
  void PlanDecode(Sequence& s, Plan& plan);
  void Admit();
  BlockCounts AdmissionDemand(const Sequence& s) const;
  void PlanPrefills(Plan& plan);
  int32_t PlanChunk(Sequence& s, int32_t budget, bool first, Plan& plan);
  int32_t ChunkTokens(const Sequence& s, int32_t budget, bool first) const;
  bool AddRow(Sequence& s, int32_t count, Plan& plan);
  Sequence& Victim() const;

  const SchedulerConfig config;
  BlockPool pool;
  std::map<RequestId, std::unique_ptr<Sequence>> sequences;
  std::set<Sequence*, ByRank> queue;
  std::vector<Sequence*> running;  // by rank: prefilling and decoding
  IdSet free_slots;
  std::vector<SlotId> departed;  // left, and the executor has not been told
  std::deque<Step> steps;        // in flight, oldest first
  Step next;                     // the one being planned
  int32_t draining = 0;          // preempted sequences whose rows have not landed
  bool preempted = false;        // in the plan being made
  std::vector<Sequence*> changed;
  std::vector<Output> refused;
  std::vector<TableChange> changes;  // scratch
  std::vector<Sequence*> prefills;   // scratch
  int64_t arrivals = 0;
  int64_t steps_planned = 0;
  int64_t prefill_tokens = 0, decode_tokens = 0, preemptions = 0, finished = 0;
};

}  // namespace braid
