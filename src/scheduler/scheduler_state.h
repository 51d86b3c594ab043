// The scheduler's inside, split over scheduler.cc (events in, outputs out), admission.cc (who runs
// where) and planning.cc (plans). Engine thread.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "cache/id_set.h"
#include "cache/prefix_cache.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence.h"
#include "scheduler/step_cost.h"
#include "scheduler/waiting_queue.h"

namespace braid {

// Whether the figures make a scheduler; see Scheduler::Create.
Status CheckConfig(const SchedulerConfig& config);
// See Scheduler::Admissible.
Status CheckRequest(const SchedulerConfig& config, const Request& request);
// The longest that a request may get: prompt + output, within the context.
int32_t LengthMax(const SchedulerConfig& config, const Request& request);
// How many of `length_max` tokens need cache.
int32_t StoredMax(const Request& request, int32_t length_max);

// A prompt's last few tokens may be the beginning of the answer ("<think>"), which a later turn
// does not repeat. So the state that is kept for the end of a prompt is that of the last boundary
// before them.
inline constexpr int32_t kPromptTailTokens = 8;
inline int32_t ResumedAt(int32_t prompt_tokens) {
  return std::max(prompt_tokens - kPromptTailTokens, 0) / kBlockTokens * kBlockTokens;
}

struct Scheduler::State {
  explicit State(const SchedulerConfig& c) : config(c), queue(config.dp_ranks) {
    ranks.reserve(static_cast<size_t>(config.dp_ranks));
    for (int32_t i = 0; i < config.dp_ranks; ++i) ranks.emplace_back(config);
    for (const GroupGeometry& g : config.cache.groups) has_state |= g.kind == GroupKind::kState;
    changes.reserve(16);
  }

  struct Rank;
  struct RowInFlight {
    Sequence* sequence;
    int32_t start;
    int32_t end;  // of what is known; guesses follow
    int32_t drafts;
    bool sample;
    bool prompt_logprobs;
  };
  struct Step {
    StepId id;
    std::vector<RowInFlight> rows;
    int32_t prefill_tokens = 0;
  };
  // What each data-parallel rank has to itself.
  struct Rank {
    explicit Rank(const SchedulerConfig& config)
        : cache(config.cache), free_slots(config.running_max) {
      cache.RememberFreed(config.report_freed);
      for (int32_t i = 0; i < config.running_max; ++i) free_slots.Insert(i);
    }
    bool HasSlot() const { return free_slots.size() > following; }

    PrefixCache cache;
    std::vector<Sequence*> running;  // by priority, then arrival: prefilling and decoding
    IdSet free_slots;
    int32_t following = 0;    // followers of its sequences; each has a claim on a free slot
    int32_t draining = 0;     // preempted sequences whose rows have not landed
    bool preempted = false;   // in the plan being made
    RequestId starving;       // found no blocks for its row; nobody is admitted before it does
    bool closed = false;      // admits nobody in the plan being made
    RequestId blocked;        // the first of its queue was refused when the cache was at
    int64_t blocked_at = -1;  // this version
  };

  // Events.
  void On(const Submit& event);
  void On(const Abort& event);
  void On(const StepDone& event);
  void On(const TransferDone& event);
  void On(const FlushCache&) {
    for (Rank& rank : ranks) rank.cache.Flush();
  }
  void On(const ResetCache& event);
  void On(const Tick&) {}  // no rule reads time; logs carry it
  void CompleteRow(const RowInFlight& planned, const RowResult& result);
  void RetireStates(Sequence& s, int32_t end);
  void TakeAccepted(Sequence& s, const RowResult& result);
  void TakeTokens(Sequence& s, const RowInFlight& row, const RowResult& result);
  static bool Stops(const Sequence& s, TokenId token);
  void TakeToken(Sequence& s, TokenId token, const TokenLogprob& logprob);
  void Arrive(Sequence& s, const TransferDone& event);
  void TakePromptLogprobs(Sequence& s, const RowInFlight& row, const RowResult& result);

  // Life.
  void Enqueue(Sequence& s);
  void Finish(Sequence& s, FinishReason reason);
  void Preempt(Sequence& s);
  void ReleaseBlocks(Sequence& s);
  void Publish(Sequence& s, int32_t start, int32_t end) {
    if (s.reuses && start / kBlockTokens != end / kBlockTokens) PublishBlocks(s, start, end);
  }
  void PublishBlocks(Sequence& s, int32_t start, int32_t end);
  void Changed(Sequence& s);
  void EraseIfGone(Sequence& s);
  void LeaveRunning(Sequence& s);
  Output MakeOutput(Sequence& s);

  Status AuditBlocks(int32_t rank) const;
  Status AuditPins(int32_t rank) const;
  Status AuditSlots(int32_t rank) const;
  Status AuditFollowers() const;

  // Plans.
  Plan Build();
  Plan Joined();
  void PlanDecodes(Rank& rank);
  void PlanDecode(Sequence& s);
  int32_t DraftTokens(const Sequence& s) const;
  void PlanTransfer(Sequence& s, bool receive);
  void PlanPrefills(Rank& rank);
  int32_t PrefillBudget(int32_t planned) const;
  int32_t PlanChunk(Sequence& s, int32_t budget, bool first);
  int32_t ChunkTokens(const Sequence& s, int32_t budget, bool first) const;
  int32_t PrefillCut(const Sequence& s) const;
  static int32_t RemainingOf(const Sequence& s);
  bool AddRow(Sequence& s, int32_t count);
  bool Cover(Sequence& s, int32_t start, int32_t end);
  bool CoverAnew(Sequence& s, int32_t start, int32_t end);
  bool PreemptFor(Sequence& s);
  Sequence& Victim(const Rank& rank) const;

  // Admission.
  void Admit();
  bool AdmitFirst();
  bool AdmitTo(Sequence& s, int32_t rank);
  bool TakeBlocks(Sequence& s, Rank& rank, PrefixMatch match);
  std::vector<int32_t> Placements(Sequence& s) const;
  bool MayReuse(const Sequence& s) const {
    return config.prefix_cache && s.preemptions < config.preemptions_max;
  }
  PrefixMatch FindPrefix(Sequence& s, int32_t rank) const;
  BlockCounts AdmissionDemand(const Sequence& s) const;

  // Prefixes that are being computed: shared_prefix.cc.
  struct Leader {
    Sequence* sequence = nullptr;
    int32_t tokens = 0;  // it is about to publish so many of the follower's
  };
  Leader FindLeader(const Sequence& s, const Rank& rank, int32_t stored) const;
  int32_t Promised(const Sequence& leader, const Sequence& s, int32_t stored) const;
  bool FollowAnyone(Sequence& s, Rank& rank, int32_t stored);
  void Unfollow(Sequence& s);
  void WakeFollowers(Sequence& leader, int32_t published);

  Rank& RankOf(const Sequence& s) { return ranks[static_cast<size_t>(s.dp_rank)]; }
  const Rank& RankOf(const Sequence& s) const { return ranks[static_cast<size_t>(s.dp_rank)]; }
  int64_t CacheVersion() const;
  bool Quiet() const;

  const SchedulerConfig config;
  std::vector<Rank> ranks;
  std::map<RequestId, std::unique_ptr<Sequence>> sequences;
  WaitingQueue queue;
  RequestId blocked;         // the first of those that may run anywhere was refused when the caches
  int64_t blocked_at = -1;   // were at this version
  int32_t next_rank = 0;     // of round robin
  int32_t decode_rows = 0;   // in the plan being made
  int32_t draft_budget = 0;  // guesses that its rank may still have in it
  int32_t transfers = 0;     // under way
  StepCost cost;
  std::vector<SlotId> departed;  // left, and the executor has not been told
  std::deque<Step> steps;        // in flight, oldest first
  // The one being planned, a part for each rank: joined when all are there.
  std::vector<Plan> parts;
  std::vector<Step> next;
  Step landed;  // the last that came back; its memory is used again
  std::vector<Sequence*> changed;
  std::vector<Output> refused;
  std::vector<Output> outputs;       // of the last TakeOutputs
  std::vector<TableChange> changes;  // scratch
  std::vector<Sequence*> prefills;   // scratch
  bool has_state = false;            // some group is of recurrent state
  int64_t epochs = 0;
  int64_t arrivals = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0;
  std::array<int64_t, kReuseStops> reuse_stops{}, lost_tokens{};
  int64_t steps_planned = 0;
  int64_t prefill_tokens = 0, decode_tokens = 0, preemptions = 0, finished = 0;
  int64_t drafts_planned = 0, drafts_accepted = 0, transfers_done = 0, transfers_failed = 0;
};

}  // namespace braid
