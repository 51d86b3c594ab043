// Moves of parts to and from the directory, and memory beside the arena; see the headers.
#include "tiers/disk_tier.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "tiers/disk_tier_state.h"

namespace braid {
namespace {

// What is read ahead at a time. Linux reads no more by one call than a file's read-ahead window,
// which has 128 KiB unless somebody changed it; and nothing while a file system in user space has
// its hands full, mostly with nine of them.
constexpr int64_t kPieceBytes = 1 << 20;
constexpr int64_t kWindowBytes = 128 << 10;

}  // namespace

DiskTier::DiskTier(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<DiskTier>> DiskTier::Open(const DiskTierOptions& options) {
  auto state = std::make_unique<State>(options);
  RETURN_IF_ERROR(state->Open());
  State& s = *state;
  s.queue.Begin(options.threads);
  if (s.on_disk()) s.watch = std::thread([&s] { s.WatchOthers(); });
  return std::unique_ptr<DiskTier>(new DiskTier(std::move(state)));
}

DiskTier::~DiskTier() {
  State& s = *state_;
  {
    std::lock_guard lock(s.watch_mutex);
    s.stopping = true;
  }
  s.wake.notify_all();
  s.queue.Stop();
  if (s.watch.joinable()) s.watch.join();
  for (auto& [id, segment] : s.segments) {
    Close(segment);
  }
  if (s.lines >= 0) ::close(s.lines);
}

// What was cleared is not there at a later start either, whatever was under way.
Status DiskTier::State::CheckCleared(const Task& task) const {
  if (task.began_us > cleared_us) return {};
  return Error{ErrorCode::kNotFound, "the cache was cleared before the part was written"};
}

Status DiskTier::State::WriteFile(Task& task) {
  const KnownPart& part = task.part;
  PartPlace place;
  int64_t bytes = 0;
  for (const auto& piece : task.pieces) bytes += std::ssize(piece);
  int32_t id = 0;
  int fd = -1;
  {
    const auto lock = Lock();
    RETURN_IF_ERROR(CheckCleared(task));
    if (parts.contains(part)) return {};
    ASSIGN_OR_RETURN(id, Reserve(part_file.BytesOf(bytes), place.offset));
    fd = segments[id].pages;
  }
  Status status = part_file.Write(fd, part, task.pieces, place);
  if (status) status = WriteEntry(id, part, place);
  const auto lock = Lock();
  if (status) task.disk_bytes = place.bytes + static_cast<int64_t>(sizeof(SegmentEntry));
  if (status) status = CheckCleared(task);
  if (status) AddPlace(part, Place{id, place});
  const int64_t room = RoundUp(part_file.BytesOf(bytes), kStoredAlignment);
  TierSegment& segment = segments[id];
  if (!status && segment.bytes == place.offset + room) segment.bytes = place.offset;
  Leave(id);
  return status;
}

// One after the other, so that an index has no holes, and not under the mutex: whoever reads does
// not wait for a slow disk to write.
Status DiskTier::State::WriteEntry(int32_t id, const KnownPart& part, const PartPlace& place) {
  const SegmentEntry entry = part_file.EntryOf(part, place);
  std::lock_guard writer(index_mutex);
  int fd = -1;
  int64_t offset = 0;
  {
    const auto lock = Lock();
    fd = segments[id].index;
    offset = segments[id].index_bytes;
  }
  RETURN_IF_ERROR(WriteAll(files, fd, std::as_bytes(std::span(&entry, 1)), offset));
  const auto lock = Lock();
  segments[id].index_bytes += static_cast<int64_t>(sizeof(entry));
  return {};
}

// From the first of its places that can be read; the others are dropped, unless it is only that no
// descriptor is left.
Status DiskTier::State::ReadFile(Task& task) {
  auto lock = Lock();
  if (!parts.contains(task.part)) {  // another server's, or another group's, just written
    lock.unlock();
    Look();
    lock = Lock();
  }
  Status status = Error{ErrorCode::kNotFound, "the part is not there any more"};
  Place place;
  do {
    const auto at = parts.find(task.part);
    if (at == parts.end()) break;
    place = at->second;
    status = ReadPlace(task, place, lock);
    if (!status && status.error().code == ErrorCode::kUnavailable) break;
  } while (!status && DropPlace(task.part, place));
  return status;
}

// The lock is held before and afterwards, and not while bytes are read.
Status DiskTier::State::ReadPlace(Task& task, const Place& place,
                                  std::unique_lock<std::mutex>& lock) {
  TierSegment& segment = segments[place.segment];
  ASSIGN_OR_RETURN(const int fd, OpenPages(segments, place.segment));
  ++segment.users;
  TellUse(segment);
  lock.unlock();
  const Status status = part_file.Read(fd, task.part, place.at, task.pieces);
  lock = Lock();
  Leave(place.segment);
  if (status) task.disk_bytes = place.at.bytes;
  figures.damaged += !status && status.error().code == ErrorCode::kInvalid;
  return status;
}

PartPieces DiskTier::State::PiecesOf(const PagePart& part) const {
  PartPieces pieces;
  for (size_t g = 0; g < geometry->groups.size(); ++g) {
    const GroupGeometry& group = geometry->groups[g];
    if (group.kind != part.kind) continue;
    std::byte* block = arena.data + BlockBytesOffset(*geometry, GroupId(static_cast<int32_t>(g)),
                                                     part.blocks.by_group[g]);
    pieces.emplace_back(block, static_cast<size_t>(group.block_bytes));
  }
  return pieces;
}

MoveQueue::Carried DiskTier::State::CarryOut(const PageMove& move, const PagePart& part,
                                             int64_t began_us) {
  Task task{.part = {part.key, part.kind}, .pieces = PiecesOf(part), .began_us = began_us};
  MoveQueue::Carried carried;
  carried.status = arena.access != nullptr ? CarryByCopy(move.in(), task)
                   : move.in()             ? Read(task)
                                           : Write(task);
  carried.in_memory = task.in_memory;
  carried.disk_bytes = task.disk_bytes;
  for (const auto& piece : task.pieces) {
    carried.memory_bytes += task.in_memory ? std::ssize(piece) : 0;
  }
  const auto lock = Lock();
  (move.in() ? figures.read_bytes : figures.written_bytes) += task.disk_bytes;
  (move.in() ? figures.read_us : figures.write_us) += MonotonicUs() - began_us;
  if (!carried.status) {
    ++(move.in() ? figures.read_errors : figures.write_errors);
    if (carried.status.error().code != ErrorCode::kNotFound) Warn(carried.status.error());
  }
  Tell();
  return carried;
}

// Of a device's arena: through a copy of the part, which is what is written or has been read.
Status DiskTier::State::CarryByCopy(bool in, Task& task) {
  size_t bytes = 0;
  for (const auto& piece : task.pieces) bytes += piece.size();
  const auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::vector<ArenaAccess::Piece> both;
  size_t at = 0;
  for (auto& piece : task.pieces) {
    std::byte* there = piece.data();
    piece = {copy.get() + at, piece.size()};
    both.push_back({there, piece});
    at += piece.size();
  }
  if (!in) {
    RETURN_IF_ERROR(arena.access->Fetch(both));
    return Write(task);
  }
  RETURN_IF_ERROR(Read(task));
  return arena.access->Store(both);
}

// What is in memory, of what is there. What was on disk only is kept in memory too.
Status DiskTier::State::Read(Task& task) {
  task.in_memory = options.host != nullptr && options.host->Read(task.part, task.pieces);
  if (task.in_memory) return {};
  if (!on_disk()) return Error{ErrorCode::kNotFound, "the part is not there any more"};
  RETURN_IF_ERROR(ReadFile(task));
  Keep(task);
  return {};
}

// To both; one that has it will do.
Status DiskTier::State::Write(Task& task) {
  const bool kept = Keep(task);
  if (!on_disk()) {
    return kept ? Status() : Error{ErrorCode::kExhausted, "a part has no room in memory"};
  }
  const Status written = WriteFile(task);
  if (written || !kept) return written;
  const auto lock = Lock();
  RETURN_IF_ERROR(CheckCleared(task));
  ++figures.write_errors;
  Warn(written.error());
  return {};
}

// Has the kernel read a piece of a part into its page cache, and waits for it: so no more is on its
// way from the disk than a move that begins may wait for. What is not there, or cannot be read, is
// left to the move, which says so.
int64_t DiskTier::State::ReadPiece(const KnownPart& part, int64_t offset) {
  Place place;
  int fd = -1;
  {
    const auto lock = Lock();
    const auto at = parts.find(part);
    if (at == parts.end()) return -1;
    if (options.host != nullptr && options.host->Has(part)) return -1;
    place = at->second;
    const Result<int> pages = OpenPages(segments, place.segment);
    if (!pages) return -1;
    fd = *pages;
    ++segments[place.segment].users;
  }
  const int64_t end = std::min(offset + kPieceBytes, place.at.bytes);
  for (int64_t begin = offset; begin < end; begin += kWindowBytes) {
    files.WillNeed(fd, std::min(kWindowBytes, end - begin), place.at.offset + begin);
  }
  bool there = end > offset;
  for (int64_t begin = offset; there && begin < end; begin += kWindowBytes) {
    const int64_t last = std::min(begin + kWindowBytes, end) - 1;
    std::byte byte;
    there = files.ReadAt(fd, &byte, 1, place.at.offset + last) == 1;
  }
  const auto lock = Lock();
  Leave(place.segment);
  if (!there) return -1;
  ahead_bytes += end - offset;
  return end < place.at.bytes ? end : -1;
}

// In memory, if there is some. What makes way there and is not on disk is gone.
bool DiskTier::State::Keep(const Task& task) {
  if (options.host == nullptr) return false;
  std::vector<KnownPart> gone;
  const bool kept = options.host->Write(task.part, task.pieces, task.began_us, gone);
  const auto lock = Lock();
  for (const KnownPart& g : gone) {
    if (!parts.contains(g)) news.dropped.push_back(g);
  }
  return kept;
}

// Of the index and the segments, without what was cleared.
std::unique_lock<std::mutex> DiskTier::State::Lock() {
  std::unique_lock lock(mutex);
  ForgetCleared();
  return lock;
}

// Also removes the files of what was cleared.
void DiskTier::State::WatchOthers() {
  const auto pause = std::chrono::microseconds(options.watch_us);
  std::unique_lock lock(watch_mutex);
  while (true) {
    const auto cleared = [&] { return removed_us != cleared_us; };
    wake.wait_for(lock, pause, [&] { return stopping || cleared(); });
    const bool remove = cleared();
    if (stopping && !remove) return;
    const int64_t now_us = cleared_us;
    lock.unlock();
    remove ? RemoveCleared() : Look();
    lock.lock();
    if (!remove) continue;
    removed_us = now_us;
    removed.notify_all();
  }
}

// The mutex is held. Who hears of both drops first: what was found and is gone again was not found.
void DiskTier::State::Tell() {
  if (events == nullptr || (news.added.empty() && news.dropped.empty())) return;
  std::erase_if(news.added, [&](const KnownPart& part) {
    return !parts.contains(part) && (options.host == nullptr || !options.host->Has(part));
  });
  events->Post(std::exchange(news, {}));
}

// At most once a minute: whether it was now.
bool DiskTier::State::Warn(const Error& error) {
  const int64_t now = MonotonicUs();
  if (now - warned_us < kWarnEveryUs) return false;
  warned_us = now;
  LogWarning("{}: {}; what cannot be stored or read is computed again",
             on_disk() ? "cache directory " + options.directory : "pages in memory", error.message);
  return true;
}

void DiskTier::Watch(EventSink& events) {
  const auto lock = state_->Lock();
  state_->events = &events;
  state_->Tell();
}

// The scheduler has forgotten parts whose moves failed with the last arena; they are still here.
void DiskTier::Attach(const Arena& arena, const CacheGeometry& geometry) {
  State& s = *state_;
  const bool again = s.geometry != nullptr;
  s.arena = arena;
  s.geometry = &geometry;
  if (!again) return;
  const auto lock = s.Lock();
  for (const auto& [part, place] : s.parts) s.news.added.push_back(part);
  if (s.options.host != nullptr) {
    const std::vector<KnownPart> kept = s.options.host->All();
    s.news.added.insert(s.news.added.end(), kept.begin(), kept.end());
  }
  s.Tell();
}

void DiskTier::Start(const PageMove& move, EventSink& events) {
  CHECK(state_->arena.data != nullptr, "a move before Attach");
  state_->queue.Start(move, events);
}

void DiskTier::ReadAhead(const PagesAhead& ahead) {
  if (state_->on_disk()) state_->queue.ReadAhead(ahead);
}

void DiskTier::Drain() { state_->queue.Drain(); }

void DiskTier::BeginClear() {
  State& s = *state_;
  int64_t now_us = 0;
  {
    std::lock_guard lock(s.watch_mutex);
    now_us = MonotonicUs();
    s.cleared_us = now_us;
  }
  if (s.options.host != nullptr) s.options.host->Clear(now_us);
  s.wake.notify_all();
  while (MonotonicUs() <= now_us) continue;  // moves that begin from here on are later
}

void DiskTier::AwaitCleared() {
  State& s = *state_;
  if (!s.on_disk()) return;
  std::unique_lock lock(s.watch_mutex);
  s.removed.wait(lock, [&, until = s.cleared_us.load()] { return s.removed_us >= until; });
}

int64_t DiskTier::ahead_bytes() const { return state_->ahead_bytes; }

DiskTierStats DiskTier::stats() const {
  State& s = *state_;
  const auto lock = s.Lock();
  DiskTierStats stats = s.figures;
  stats.ahead_bytes = s.ahead_bytes;
  stats.parts = static_cast<int64_t>(s.parts.size());
  stats.segments = static_cast<int64_t>(s.segments.size());
  stats.states = std::count_if(s.parts.begin(), s.parts.end(), [](const auto& part) {
    return part.first.kind == GroupKind::kState;
  });
  if (s.options.host != nullptr) {
    const HostPages::Stats host = s.options.host->stats();
    stats.host_parts = host.parts;
    stats.host_bytes = host.bytes;
  }
  for (const auto& [id, segment] : s.segments) stats.bytes += segment.bytes + segment.index_bytes;
  for (const auto& [stem, name] : s.others) stats.bytes += name.bytes;
  return stats;
}

}  // namespace braid
