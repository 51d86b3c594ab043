// Who runs next, and where. It owns the queue of those that wait and what each tenant was served;
// a request is admitted when a rank has a slot and all the blocks that it needs, or not at all. A
// request that begins as a running one does follows it (shared_prefix.cc). Engine thread.
#pragma once

#include <array>
#include <map>
#include <set>
#include <vector>

#include "scheduler/admission/waiting_queue.h"
#include "scheduler/config.h"
#include "scheduler/dp_rank.h"
#include "scheduler/plan.h"

namespace braid {

class AdmissionControl {
 public:
  // Both outlive it.
  AdmissionControl(const SchedulerConfig& config, DpRanks& ranks);

  // A sequence without slot and blocks comes to wait. Others pass it while ranks are unready.
  void Enqueue(Sequence& s);
  // One rank less is unready for a sequence that waits.
  void CountReady(Sequence& s);
  // A sequence that waits has ended.
  void Withdraw(Sequence& s);
  // Admits, in order, as many as there is room for. Each has a slot and blocks then, and stands
  // among the running ones of its rank. Valid until the next call.
  const std::vector<Sequence*>& Admit();
  // Whether the first of those that wait for the rank found too few blocks there.
  bool awaits_blocks(DpRankId rank) const;
  // Followers that wait for no more than `published` tokens of the leader can be admitted.
  void WakeFollowers(Sequence& leader, int32_t published);
  // The sequence gives its blocks back: its tenant is charged for what was computed on top of what
  // the admission charged. What that charged and nobody computed is not charged again, where the
  // sequence comes to wait again.
  void ChargeComputed(Sequence& s);
  // What a sequence awaited from a tier is there: up to `end` it is reused,
  // and at most so many tokens came from disk.
  void CountArrived(Sequence& s, int32_t end, int32_t from_disk);
  // What a sequence awaited from another engine has arrived, or is to be computed here.
  void CountReceived(const Sequence& s, bool arrived);
  // Appends what a tier may begin to read for the first of those that wait: what it has beyond the
  // arena, each part once, within a bound for all of them together (read_ahead.cc).
  void PlanReadAhead(std::vector<PagesAhead>& ahead);
  // All ranks have empty arenas again, and nobody waits.
  void Reset();

  const WaitingQueue& queue() const { return queue_; }
  int32_t unready() const { return unready_; }  // of those that wait
  // Slots of a rank that followers of its sequences will need.
  int32_t claims(DpRankId rank) const { return gates_[rank].following; }

  // Of requests at their first admission.
  struct Counts {
    int64_t prompt_tokens = 0, reused_tokens = 0;
    int64_t computed_tokens = 0, received_tokens = 0;  // the others, once that is known
    int64_t stored_tokens = 0;                       // of the reused: from a tier
    int64_t host_tokens = 0;                         // of those: it had them in memory
    std::array<int64_t, kReuseStops> reuse_stops{};  // the requests, by why they reused no more
    std::array<int64_t, kReuseStops> lost_tokens{};  // their tokens that are computed, by why
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Gate {
    int32_t following = 0;    // followers of the rank's sequences
    bool closed = false;      // admits nobody in the plan being made
    RequestId blocked;        // the first of the rank's own queue was refused when its cache
    int64_t blocked_at = -1;  // was at this version
    RequestId refused;        // the last that found too few blocks
  };
  struct Leader {
    Sequence* sequence = nullptr;
    int32_t tokens = 0;  // it is about to publish so many of the follower's
  };

  bool AdmitFirst();
  bool AdmitTo(Sequence& s, DpRankId rank);
  bool TakeBlocks(Sequence& s, DpRank& rank, PrefixMatch match);
  void CountReuse(Sequence& s, const PrefixMatch& match);
  std::vector<DpRankId> Placements(Sequence& s) const;
  bool HasSlot(DpRankId rank) const {
    return ranks_[rank].free_slots.size() > gates_[rank].following;
  }
  bool MayReuse(const Sequence& s) const {
    return config_.prefix_cache && s.preemptions < config_.preemptions_max;
  }
  PrefixMatch FindPrefix(Sequence& s, DpRankId rank) const;
  BlockCounts Demand(const Sequence& s) const;
  int64_t CacheVersion() const;

  // Prefixes that are being computed: shared_prefix.cc.
  Leader FindLeader(const Sequence& s, const DpRank& rank, const PrefixMatch& match) const;
  int32_t Promised(const Sequence& leader, const Sequence& s, const PrefixMatch& match) const;
  bool FollowAnyone(Sequence& s, DpRankId rank, const PrefixMatch& match);
  void Unfollow(Sequence& s);

  // What tiers are asked to read ahead: read_ahead.cc.
  struct Ahead {
    std::map<RequestId, PagesAhead> named;  // for requests that wait
    std::set<KnownPart> parts;              // all of them
    int64_t bytes = 0;                      // that these have
    std::vector<PagesAhead> ended;          // of those that wait no more; no plan has told it yet
  };
  void NameAhead(Sequence& s, std::vector<PagesAhead>& ahead);
  void EndAhead(Sequence& s);

  const SchedulerConfig& config_;
  DpRanks& ranks_;
  const bool has_state_;
  WaitingQueue queue_;
  int32_t unready_ = 0;
  IdVector<DpRankId, Gate> gates_;
  RequestId blocked_;        // the first of those that may run anywhere was refused when the caches
  int64_t blocked_at_ = -1;  // were at this version
  DpRankId next_{0};         // of round robin
  int64_t epochs_ = 0;       // of the prefix caches
  std::vector<Sequence*> admitted_;
  Ahead ahead_;
  Counts counts_;
};

}  // namespace braid
