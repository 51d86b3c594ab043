// See the header.
#include "scheduler/moves/page_moves.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace braid {
namespace {

// Of what rests: what a move has at most, and moves of a rank under way at least. They keep room
// from others as long as they last.
constexpr int32_t kWritesLeast = 2;
constexpr int64_t kWriteBytes = 8 << 20;
constexpr size_t kWriteParts = 16;
// Paths that wait; the oldest of more is not written.
constexpr size_t kRestingMax = 1024;

bool HasFull(const CacheGeometry& geometry) {
  return std::any_of(geometry.groups.begin(), geometry.groups.end(),
                     [](const GroupGeometry& g) { return g.kind == GroupKind::kFull; });
}

// Moves begin with steps only. So as many may be under way as take the keys and values that one
// step makes: with fewer, prompts would be computed faster than a fast disk may write them.
int32_t WritesMax(const SchedulerConfig& config) {
  if (!HasFull(config.cache)) return kWritesLeast;
  const int64_t parts_of_move =
      std::min(static_cast<int64_t>(kWriteParts),
               CeilDiv(kWriteBytes, PartBytes(config.cache, GroupKind::kFull)));
  const int64_t parts_of_step = CeilDiv(config.step_tokens_max, kBlockTokens);
  return std::max(kWritesLeast, static_cast<int32_t>(CeilDiv(parts_of_step, parts_of_move)));
}

}  // namespace

PageMoves::PageMoves(const SchedulerConfig& config, DpRanks& ranks, PageDirectory& tier)
    : config_(config),
      ranks_(ranks),
      tier_(tier),
      has_full_(HasFull(config.cache)),
      has_state_(HasState(config.cache)),
      writes_max_(WritesMax(config)),
      resting_(ranks.size()) {}

MoveId PageMoves::Begin(Sequence& s, std::vector<KnownPart> parts) {
  const MoveId id(begun_++);
  under_way_[id] = {.sequence = &s,
                    .rank = s.dp_rank,
                    .direction = Direction::kIn,
                    .parts = std::move(parts),
                    .pins = {}};
  return id;
}

bool PageMoves::idle() const {
  return under_way_.empty() &&
         std::all_of(resting_.begin(), resting_.end(),
                     [](const Resting& resting) { return resting.paths.empty(); });
}

void PageMoves::Rest(DpRankId rank, PrefixNodeId leaf) {
  PrefixCache& cache = ranks_[rank].cache;
  std::deque<Path>& paths = resting_[rank].paths;
  cache.Refer(leaf);
  FindPath(cache.index(), leaf);
  paths.push_back({.leaf = leaf, .end = path_.size()});
  if (paths.size() > kRestingMax) DropPath(rank);
}

bool PageMoves::Known(const KnownPart& part) const {
  return tier_.Has(part.key, part.kind) || writing_.contains(part);
}

// The nodes of a path, up to its last state: behind that nobody can resume.
void PageMoves::FindPath(const PrefixIndex& index, PrefixNodeId leaf) {
  path_.clear();
  for (PrefixNodeId node = leaf; index.depth(node) > 0; node = index.parent(node)) {
    path_.push_back(node);
  }
  std::reverse(path_.begin(), path_.end());
  while (has_state_ && !path_.empty() && !index.KeepsState(path_.back()) &&
         !Known({index.page(path_.back()), GroupKind::kState})) {
    path_.pop_back();
  }
}

// The first path, and counts it if an eviction came before the end of what was to be written, or
// if too many wait.
void PageMoves::DropPath(DpRankId rank) {
  PrefixCache& cache = ranks_[rank].cache;
  const PrefixIndex& index = cache.index();
  const Path path = resting_[rank].paths.front();
  resting_[rank].paths.pop_front();
  bool owed = false;
  PrefixNodeId node = path.leaf;
  while (std::cmp_greater(index.depth(node), path.end)) node = index.parent(node);
  for (; std::cmp_greater(index.depth(node), path.next); node = index.parent(node)) {
    owed |= has_full_ && !Known({index.page(node), GroupKind::kFull});
    owed |= has_state_ && std::cmp_equal(index.depth(node), path.end) &&
            !Known({index.page(node), GroupKind::kState});
  }
  counts_.unwritten += owed;
  cache.Unrefer(path.leaf);
}

void PageMoves::Forget() {
  for (const DpRankId r : resting_.ids()) {
    for (const Path& path : std::exchange(resting_[r].paths, {})) {
      ranks_[r].cache.Unrefer(path.leaf);
    }
  }
}

void PageMoves::PlanWrites(DpRankId rank, bool blocks_awaited, std::vector<PageMove>& moves) {
  Resting& resting = resting_[rank];
  const int32_t writes_max = blocks_awaited ? kWritesLeast : writes_max_;
  while (!resting.paths.empty() && resting.writes < writes_max) {
    if (!PlanWrite(rank, resting.paths.front(), moves)) DropPath(rank);
  }
}

// One move of what the rest of the path has and the tier has not; false when there is no such
// thing.
bool PageMoves::PlanWrite(DpRankId rank, Path& resting, std::vector<PageMove>& moves) {
  PrefixCache& cache = ranks_[rank].cache;
  const PrefixIndex& index = cache.index();
  FindPath(index, resting.leaf);
  PageMove move{.id = MoveId(begun_),
                .place = Place::kDisk,
                .direction = Direction::kOut,
                .dp_rank = rank,
                .slot = {},
                .request = {},
                .parts = {}};
  int64_t bytes = 0;
  size_t pinned = 0;  // nodes of the path
  const auto add = [&](PrefixNodeId node, GroupKind kind) {
    if (Known({index.page(node), kind})) return;
    PagePart part{index.depth(node) - 1, kind, {}, index.page(node)};
    for (size_t g = 0; g < config_.cache.groups.size(); ++g) {
      if (config_.cache.groups[g].kind != kind) continue;
      part.blocks.by_group[g] = index.Blocks(node).by_group[g];
    }
    move.parts.push_back(part);
    bytes += PartBytes(config_.cache, kind);
  };
  for (size_t& i = resting.next; i < path_.size(); ++i) {
    if (bytes >= kWriteBytes || move.parts.size() >= kWriteParts) break;
    if (has_full_ && !index.Carries(path_[i], GroupKind::kFull)) break;
    const size_t before = move.parts.size();
    if (has_full_) add(path_[i], GroupKind::kFull);
    if (index.KeepsState(path_[i])) add(path_[i], GroupKind::kState);
    if (move.parts.size() > before) pinned = i + 1;
  }
  if (move.parts.empty()) return false;
  ++begun_;
  Moving& moving = under_way_[move.id];
  moving = {.rank = rank, .direction = Direction::kOut, .parts = {}, .pins = {}};
  const auto pin = [&](PrefixNodeId node, GroupKind kind) {
    cache.Pin(node, kind);
    moving.pins.emplace_back(node, kind);
  };
  for (size_t i = 0; has_full_ && i < pinned; ++i) pin(path_[i], GroupKind::kFull);
  for (const PagePart& part : move.parts) {
    moving.parts.push_back({part.key, part.kind});
    writing_.insert(moving.parts.back());
    if (part.kind == GroupKind::kState) {
      pin(path_[static_cast<size_t>(part.index)], GroupKind::kState);
    }
  }
  ++resting_[rank].writes;
  moves.push_back(std::move(move));
  return true;
}

std::optional<Sequence*> PageMoves::End(const PagesMoved& event) {
  const auto at = under_way_.find(event.move);
  if (at == under_way_.end()) return {};
  Moving move = std::move(at->second);
  under_way_.erase(at);
  if (move.sequence == nullptr) EndWrite(move);
  if (move.direction == Direction::kIn && !move.parts.empty()) {
    const bool memory = event.in_memory.size() == move.parts.size();
    ++(memory ? counts_.waits_in_memory : counts_.waits);
    (memory ? counts_.wait_in_memory_us : counts_.wait_us) += event.duration_us;
  }
  const bool all_lost = !event.error.empty() && event.lost.empty();
  const std::set<int32_t> lost(event.lost.begin(), event.lost.end());
  (move.direction == Direction::kOut ? counts_.bytes_written : counts_.bytes_read) +=
      event.disk_bytes;
  if (move.direction == Direction::kIn) counts_.bytes_in_memory += event.memory_bytes;
  for (size_t i = 0; i < move.parts.size(); ++i) {
    const bool there = !all_lost && !lost.contains(static_cast<int32_t>(i));
    if (move.direction == Direction::kOut) {
      if (there) tier_.Add(move.parts[i]);
      counts_.parts_out += there;
      counts_.failed_out += !there;
    } else {
      if (!there) tier_.Drop(move.parts[i]);
      counts_.parts_in += there;
      counts_.failed_in += !there;
    }
  }
  return move.sequence;
}

void PageMoves::EndWrite(const Moving& move) {
  PrefixCache& cache = ranks_[move.rank].cache;
  for (const KnownPart& part : move.parts) writing_.erase(part);
  for (size_t i = move.pins.size(); i-- > 0;) cache.Unpin(move.pins[i].first, move.pins[i].second);
  --resting_[move.rank].writes;
}

}  // namespace braid
