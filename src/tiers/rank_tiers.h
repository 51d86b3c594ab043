// The disk tiers of an engine's ranks: each rank's pages lie in a folder of its own, because a rank
// has its own heads and states. A move is over when it is over on all ranks of its group, and what
// one of them has lost is lost. One rank uses the directory itself.
//
// Ranks may be threads of one process, or processes with an object each: then that of rank 0 hears
// of the others' ends by Post (runtime/lock_step.h brings them). A lost rank ends no move, and with
// it ends the run (scheduler/driver.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tiers/disk_tier.h"

namespace braid {

// What the ranks are: groups of `group` neighbours share the heads. Groups compute the same, so the
// n-th ranks of all groups share a folder.
struct TierRanks {
  int32_t count = 1, group = 1;
  std::vector<int32_t> here = {};  // of this process, ascending; none: all
};

class RankTiers final : public EventSink {
 public:
  // The bound is of all folders together, and `host_bytes` (0: none) of all memory for pages, also
  // where processes divide it; of a NUMA node (-1: any).
  static Result<std::unique_ptr<RankTiers>> Open(const DiskTierOptions& options,
                                                 const TierRanks& ranks, int64_t host_bytes = 0,
                                                 int host_node = -1);
  ~RankTiers() override;

  // As DiskTier::Watch; before the first move. Of a process without rank 0: `events` gets the ends
  // of its own part of moves, for rank 0.
  void Watch(EventSink& events);
  Mover& MoverOf(int32_t rank);  // of this process
  // `wait`: returns when the files of this process are removed, which the engine thread does not
  // wait for.
  void Clear(bool wait);
  DiskTierStats stats() const;  // of all here; what can be read, of the rank with the fewest
  int64_t ahead_bytes() const;  // as in `stats`; any thread; it waits for no disk

  // What the tiers of other processes say.
  void Post(Event event) override;

 private:
  class RankMover;
  // What the tiers of this process say.
  struct Here final : EventSink {
    explicit Here(RankTiers& tiers) : all(tiers) {}
    void Post(Event event) override { all.Take(std::move(event)); }
    RankTiers& all;
  };
  struct Ends {
    int32_t ranks = 0;  // that have reported
    PagesMoved all;
  };
  explicit RankTiers(TierRanks ranks) : ranks_(std::move(ranks)) {}
  bool leads() const { return ranks_.here.front() == 0; }
  void Take(Event event);

  const TierRanks ranks_;
  Here here_{*this};
  std::map<int32_t, std::unique_ptr<HostPages>> hosts_;  // by folder
  std::vector<std::unique_ptr<DiskTier>> tiers_;
  std::map<int32_t, std::unique_ptr<Mover>> movers_;  // by rank
  std::mutex mutex_;
  std::map<MoveId, Ends> ends_;  // of moves that are not over; of rank 0's process
  EventSink* events_ = nullptr;
};

}  // namespace braid
