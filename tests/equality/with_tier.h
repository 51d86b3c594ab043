// A run of a subject of the equality table that writes what rests to a directory and reads it
// again. The test's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/event_codec.h"
#include "tests/equality/table.h"
#include "tiers/rank_tiers.h"

namespace braid {

// `apart`: each rank has its tier alone and reports to that of rank 0 in records, as processes do.
class WithTier {
 public:
  WithTier(Machine& machine, const SchedulerConfig& config, const std::string& directory,
           bool apart = false)
      : machine_(machine) {
    SchedulerConfig with = config;
    with.tier = true;
    run = std::make_unique<Engine>(machine, with);
    const auto ranks = static_cast<int32_t>(machine.tiers().size());
    for (int32_t r = 0; r < ranks; ++r) {
      if (r == 0 || apart) {
        TierRanks held{machine.mesh().ranks(), machine.mesh().tp};
        if (apart) held.here = {r};
        tiers_.push_back(*RankTiers::Open({.directory = directory,
                                           .bytes_max = int64_t{1} << 30,
                                           .fingerprint = TierFingerprint("equality")},
                                          held));
        tiers_.back()->Watch(r == 0 ? run->events() : reports_.emplace_back(*tiers_[0]));
      }
      machine.tiers()[static_cast<size_t>(r)].Use(&tiers_.back()->MoverOf(r), &run->events());
    }
    run->TakeNews();
  }
  ~WithTier() {
    while (!tiers_.empty()) tiers_.pop_back();
    for (MoverSwitch& tier : machine_.tiers()) tier.Use(nullptr, nullptr);
  }
  std::unique_ptr<Engine> run;

 private:
  struct Reports final : EventSink {
    explicit Reports(RankTiers& tiers) : to(tiers) {}
    void Post(Event event) override {
      std::string record;
      AppendRecord(event, record);
      to.Post(std::get<Event>(**RecordReader(record).Next()));
    }
    RankTiers& to;
  };

  Machine& machine_;
  std::deque<Reports> reports_;
  std::vector<std::unique_ptr<RankTiers>> tiers_;
};

}  // namespace braid
