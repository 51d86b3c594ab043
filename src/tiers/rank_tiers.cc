// See the header.
#include "tiers/rank_tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"

namespace braid {

// Of one rank: carries out the moves of its own group.
class RankTiers::RankMover final : public Mover {
 public:
  RankMover(RankTiers& all, DiskTier& tier, int32_t group)
      : all_(all), tier_(tier), group_(group) {}
  void Attach(const Arena& arena, const CacheGeometry& geometry) override {
    tier_.Attach(arena, geometry);
  }
  void Start(const PageMove& move, EventSink&) override {
    if (move.dp_rank.value == group_) tier_.Start(move, all_.here_);
  }
  void ReadAhead(const PagesAhead& ahead) override {
    if (ahead.dp_rank.value == group_) tier_.ReadAhead(ahead);
  }
  void Drain() override { tier_.Drain(); }

 private:
  RankTiers& all_;
  DiskTier& tier_;
  const int32_t group_;
};

Result<std::unique_ptr<RankTiers>> RankTiers::Open(const DiskTierOptions& options,
                                                   const TierRanks& ranks, int64_t host_bytes,
                                                   int host_node) {
  TierRanks own_ranks = ranks;
  for (int32_t rank = 0; ranks.here.empty() && rank < ranks.count; ++rank) {
    own_ranks.here.push_back(rank);
  }
  std::unique_ptr<RankTiers> all(new RankTiers(std::move(own_ranks)));
  // Ranks of one process share memory as they share folders.
  const auto here = static_cast<int32_t>(all->ranks_.here.size());
  const int32_t memories = ranks.count / here * std::min(here, ranks.group);
  for (const int32_t rank : all->ranks_.here) {
    DiskTierOptions own = options;
    const int32_t number = rank % ranks.group;
    if (host_bytes > 0 && !all->hosts_.contains(number)) {
      ASSIGN_OR_RETURN(all->hosts_[number], HostPages::Create(host_bytes / memories, host_node));
    }
    if (host_bytes > 0) own.host = all->hosts_[number].get();
    if (ranks.count > 1 && !own.directory.empty()) {
      own.directory += fmt::format("/rank-{}", number);
      own.bytes_max /= ranks.group;
      own.fingerprint = options.fingerprint.OfRank(number, ranks.group);
    }
    ASSIGN_OR_RETURN(std::unique_ptr<DiskTier> tier, DiskTier::Open(own));
    all->movers_[rank] = std::make_unique<RankMover>(*all, *tier, rank / ranks.group);
    all->tiers_.push_back(std::move(tier));
  }
  return all;
}

// The tiers end what is under way, and say so, while the rest is there.
RankTiers::~RankTiers() { tiers_.clear(); }

// What the first rank's folder has is what there is, as far as anybody knows, less what makes way
// in any rank's: memory that groups share makes way for either, and what one rank lacks is lost for
// all.
void RankTiers::Watch(EventSink& events) {
  events_ = &events;
  for (size_t i = 0; i < tiers_.size(); ++i) {
    tiers_[i]->Watch(i == 0 && leads() ? events : here_);
  }
}

Mover& RankTiers::MoverOf(int32_t rank) { return *movers_.at(rank); }

void RankTiers::Post(Event event) { Take(std::move(event)); }

void RankTiers::Take(Event event) {
  CHECK(events_ != nullptr, "a tier that nobody watches");
  if (PagesKnown* known = std::get_if<PagesKnown>(&event)) {
    known->added.clear();
    if (!known->dropped.empty()) events_->Post(std::move(event));
    return;
  }
  PagesMoved* moved = std::get_if<PagesMoved>(&event);
  if (moved == nullptr) return;
  if (!leads()) return events_->Post(std::move(event));
  std::lock_guard lock(mutex_);
  Ends& ends = ends_[moved->move];
  PagesMoved& all = ends.all;
  std::set<int32_t> lost(all.lost.begin(), all.lost.end());
  lost.insert(moved->lost.begin(), moved->lost.end());
  all.move = moved->move;
  all.lost.assign(lost.begin(), lost.end());
  all.in_memory = moved->in_memory;  // ranks keep the same, as far as anybody needs to know
  if (!moved->error.empty()) all.error = moved->error;
  all.duration_us = std::max(all.duration_us, moved->duration_us);
  all.disk_bytes += moved->disk_bytes;
  all.memory_bytes += moved->memory_bytes;
  if (++ends.ranks < ranks_.group) return;
  PagesMoved whole = std::move(all);
  ends_.erase(whole.move);
  events_->Post(std::move(whole));
}

void RankTiers::Clear(bool wait) {
  for (const auto& tier : tiers_) tier->BeginClear();
  if (!wait) return;
  for (const auto& tier : tiers_) tier->AwaitCleared();
}

int64_t RankTiers::ahead_bytes() const {
  int64_t sum = 0;
  for (const auto& tier : tiers_) sum += tier->ahead_bytes();
  return sum;
}

DiskTierStats RankTiers::stats() const {
  DiskTierStats sum = tiers_[0]->stats();
  for (size_t rank = 1; rank < tiers_.size(); ++rank) {
    const DiskTierStats s = tiers_[rank]->stats();
    if (s.parts < sum.parts) {
      sum.parts = s.parts;
      sum.states = s.states;
    }
    sum.host_parts = std::min(sum.host_parts, s.host_parts);
    if (ranks_.here[rank] < ranks_.here[0] + ranks_.group) {  // the others have the same folders
      sum.segments += s.segments;
      sum.bytes += s.bytes;
      sum.host_bytes += s.host_bytes;
    }
    sum.read_bytes += s.read_bytes;
    sum.written_bytes += s.written_bytes;
    sum.ahead_bytes += s.ahead_bytes;
    sum.read_errors += s.read_errors;
    sum.write_errors += s.write_errors;
    sum.damaged += s.damaged;
    sum.dropped += s.dropped;
    sum.read_us += s.read_us;
    sum.write_us += s.write_us;
  }
  return sum;
}

}  // namespace braid
