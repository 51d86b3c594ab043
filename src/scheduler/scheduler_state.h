// The scheduler's inside, split over scheduler.cc (events in, outputs out) and planning.cc (plans).
// Engine thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "cache/id_set.h"
#include "cache/prefix_cache.h"
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
      : config(c), cache(config.cache), free_slots(config.running_max) {
    for (int32_t i = 0; i < config.running_max; ++i) free_slots.Insert(i);
    for (const GroupGeometry& g : config.cache.groups) has_state |= g.kind == GroupKind::kState;
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
  void On(const FlushCache&) { cache.Flush(); }
  void On(const Tick&) {}  // no rule reads time; logs carry it
  void Land(const RowInFlight& row, const RowResult& result);
  void TakeToken(Sequence& s, const RowResult& result);
  void TakePromptLogprobs(Sequence& s, const RowInFlight& row, const RowResult& result);

  // Life.
  void Enqueue(Sequence& s);
  void Finish(Sequence& s, FinishReason reason);
  void Preempt(Sequence& s);
  void Vacate(Sequence& s);
  void Publish(Sequence& s, const RowInFlight& row);
  void Changed(Sequence& s);
  void EraseIfGone(Sequence& s);
  Output MakeOutput(Sequence& s);

  Status AuditBlocks() const;
  Status AuditPins() const;
  Status AuditSlots() const;

  // Plans.
  Plan Build();
  void PlanDecodes(Plan& plan);
  void PlanDecode(Sequence& s, Plan& plan);
  void Admit();
  bool Seat(Sequence& s);
  PrefixMatch FindPrefix(const Sequence& s) const;
  BlockCounts AdmissionDemand(const Sequence& s) const;
  int32_t PrefillCut(const Sequence& s) const;
  void PlanPrefills(Plan& plan);
  int32_t PlanChunk(Sequence& s, int32_t budget, bool first, Plan& plan);
  int32_t ChunkTokens(const Sequence& s, int32_t budget, bool first) const;
  bool AddRow(Sequence& s, int32_t count, Plan& plan);
  bool MakeWay(Sequence& s);
  Sequence& Victim() const;

  const SchedulerConfig config;
  PrefixCache cache;
  std::map<RequestId, std::unique_ptr<Sequence>> sequences;
  std::set<Sequence*, ByRank> queue;
  std::vector<Sequence*> running;  // by rank: prefilling and decoding
  IdSet free_slots;
  std::vector<SlotId> departed;  // left, and the executor has not been told
  std::deque<Step> steps;        // in flight, oldest first
  Step next;                     // the one being planned
  Step landed;                   // the last that came back; its memory is used again
  int32_t draining = 0;          // preempted sequences whose rows have not landed
  bool preempted = false;        // in the plan being made
  RequestId starving;            // found no blocks for its row; nobody is admitted before it does
  std::vector<Sequence*> changed;
  std::vector<Output> refused;
  std::vector<Output> outputs;  // of the last TakeOutputs
  std::vector<TableChange> changes;  // scratch
  std::vector<Sequence*> prefills;   // scratch
  bool has_state = false;            // some group is of recurrent state
  RequestId blocked;                 // the queue's first was refused when the cache was at
  int64_t blocked_at = -1;           // this version
  int64_t epochs = 0;
  int64_t arrivals = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0;
  std::array<int64_t, kReuseStops> reuse_stops{}, lost_tokens{};
  int64_t steps_planned = 0;
  int64_t prefill_tokens = 0, decode_tokens = 0, preemptions = 0, finished = 0;
};

}  // namespace braid
