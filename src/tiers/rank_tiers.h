// The disk tiers of an engine's ranks: each rank's pages lie in a folder of its own, because a rank
// has its own heads and states. A move is over when it is over on all ranks of its group, and what
// one of them has lost is lost. One rank uses the directory itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "tiers/disk_tier.h"

namespace braid {

// What the ranks are: groups of `group` neighbours share the heads. Groups compute the same, so the
// n-th ranks of all groups share a folder.
struct TierRanks {
  int32_t count = 1, group = 1;
};

class RankTiers final : public EventSink {
 public:
  // The bound is of all folders together.
  static Result<std::unique_ptr<RankTiers>> Open(const DiskTierOptions& options,
                                                 const TierRanks& ranks);
  ~RankTiers() override;

  // As DiskTier::Watch; before the first move.
  void Watch(EventSink& events);
  Mover& MoverOf(int32_t rank) { return *movers_[static_cast<size_t>(rank)]; }
  void Clear();
  DiskTierStats stats() const;  // of all; what can be read, of the rank with the fewest

  // What the tiers of ranks say.
  void Post(Event event) override;

 private:
  class RankMover;
  struct Ends {
    int32_t left = 0;
    PagesMoved all;
  };
  explicit RankTiers(const TierRanks& ranks) : ranks_(ranks) {}

  const TierRanks ranks_;
  std::vector<std::unique_ptr<DiskTier>> tiers_;
  std::vector<std::unique_ptr<Mover>> movers_;  // of each rank
  std::mutex mutex_;
  std::map<MoveId, Ends> ends_;
  EventSink* events_ = nullptr;
};

}  // namespace braid
