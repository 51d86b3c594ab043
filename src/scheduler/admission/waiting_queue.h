// Who is admitted next: the highest priority, then the tenant that was served least, then who came
// first. Start-time fair queueing (Goyal, Vin, Cheng 1996) with tenants as flows: a tenant's tag is
// the tokens that were spent on it; one that comes to wait starts at the least tag of those that
// do, so that idleness saves nothing up. One queue for requests that may run anywhere and
// one for each rank's own. Engine thread.
//
// Invariant: a tenant's line is filed under its first request and its tag. Who is set aside
// stands in no line.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "scheduler/life_cycle/sequence.h"

namespace braid {

class WaitingQueue {
 public:
  explicit WaitingQueue(int32_t dp_ranks) : own_(static_cast<size_t>(dp_ranks)) {}

  void Insert(Sequence& s);
  void Erase(Sequence& s);
  // A sequence that waits is passed over until it is put back. Its tenant keeps its tag: it waits.
  void SetAside(Sequence& s) { TakeFromLine(s); }
  void PutBack(Sequence& s) { PutInLine(s); }
  // The next of those that must run on the rank, or, without one, may run on any; null when none
  // waits.
  Sequence* First(DpRankId rank) const;
  // At most `count` of the same, about in the order in which they will be admitted: after the first
  // of each tenant come their second ones.
  std::vector<Sequence*> Head(DpRankId rank, size_t count) const;
  // Whether `a` is before `b`, of whichever queues.
  bool Before(const Sequence& a, const Sequence& b) const;
  // The sequence was admitted; it was First.
  void Admitted(const Sequence& s);
  // Tokens were spent on the sequence's tenant.
  void Charge(const Sequence& s, int64_t tokens);

  int32_t size() const { return size_; }
  int32_t preempted() const { return preempted_; }  // of them, those that ran before
  bool empty() const { return size_ == 0; }

 private:
  struct Tenant {
    int64_t tag = 0;
    int32_t waiting = 0;
  };
  using Key = std::tuple<int32_t, int64_t, int64_t>;  // -priority, tag, arrival
  struct Lines {
    std::map<std::string, std::set<Sequence*, ByPriority>> by_tenant;
    std::map<Key, Sequence*> firsts;  // of each tenant
  };

  Lines& LinesOf(DpRankId rank) { return rank.valid() ? own_[rank] : anywhere_; }
  Lines& LinesOf(const Sequence& s) { return LinesOf(DpRankId(s.request.dp_rank)); }
  Key KeyOf(const Sequence& s) const;
  void PutInLine(Sequence& s);
  void TakeFromLine(Sequence& s);
  void SetTag(const std::string& name, Tenant& tenant, int64_t tag);
  void Forget();

  Lines anywhere_;                 // of those that may run on any rank
  IdVector<DpRankId, Lines> own_;  // of those that must run on this one
  std::map<std::string, Tenant> tenants_;
  std::multiset<int64_t> tags_;  // of tenants that wait
  int64_t now_ = 0;              // the highest tag of who was admitted, for when nobody waits
  int32_t size_ = 0, preempted_ = 0;
};

}  // namespace braid
