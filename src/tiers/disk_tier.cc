// See the header. One mutex guards index and segments; bytes are read and written without it,
// through descriptors that stay open while somebody uses them. The engine thread takes that of the
// queue only.
#include "tiers/disk_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "tiers/move_queue.h"
#include "tiers/part_file.h"

namespace braid {
namespace {

constexpr int64_t kSegmentsLeast = 8;  // that the bound is divided into
constexpr int64_t kWarnEveryUs = 60'000'000;

Error Unusable(const std::string& path, const char* what) {
  return {ErrorCode::kInvalid, fmt::format("{}: {}: {}", path, what, std::strerror(errno)),
          "cache_dir"};
}

struct Segment {
  std::string stem;
  int pages = -1, index = -1;
  int64_t bytes = 0;        // of NAME.pages that are given away or there
  int64_t index_bytes = 0;  // of NAME.index that were read or written
  int64_t used_us = 0;
  int32_t users = 0;  // threads that read or write it
  bool own = false;   // this tier appends to it, or did
  std::vector<KnownPart> parts;
};

}  // namespace

struct DiskTier::State {
  explicit State(const DiskTierOptions& o)
      : options(o),
        files(o.files != nullptr ? *o.files : system),
        identity{o.fingerprint.digits, o.cipher ? o.cipher->id() : ""},
        part_file(files, options.fingerprint.common, options.cipher ? &*options.cipher : nullptr),
        queue([this](const PageMove& move, const PagePart& part, int64_t began_us) {
          return CarryOut(move, part, began_us);
        }) {}

  struct Place {
    int32_t segment = 0;
    PartPlace at;
  };

  Status Open();
  void WatchOthers();
  MoveQueue::Carried CarryOut(const PageMove& move, const PagePart& part, int64_t began_us);
  PartPieces PiecesOf(const PagePart& part) const;
  Status CarryByCopy(bool in, const KnownPart& part, const PartPieces& pieces, bool& in_memory);
  Status Read(const KnownPart& part, const PartPieces& pieces, bool& in_memory);
  Status Write(const KnownPart& part, const PartPieces& pieces);
  bool Keep(const KnownPart& part, const PartPieces& pieces);
  Status ReadFile(const KnownPart& part, const PartPieces& pieces);
  Status WriteFile(const KnownPart& part, const PartPieces& pieces);
  Status WriteEntry(int32_t id, const KnownPart& part, const PartPlace& place);
  Result<int32_t> Reserve(int64_t bytes, int64_t& offset);
  Result<int32_t> NewSegment();
  Status MakeRoom(int64_t bytes);
  bool Remove(int32_t id);
  void Forget(int32_t id);
  void Learn(int32_t id, const std::vector<SegmentEntry>& entries);
  void Look();
  Result<int32_t> OpenSegment(const SegmentName& name);
  void Tell();
  void Warn(const Error& error);
  bool on_disk() const { return !options.directory.empty(); }
  int64_t SegmentBytes() const {
    return std::clamp<int64_t>(options.bytes_max / kSegmentsLeast, kStoredAlignment,
                               options.segment_bytes_max);
  }

  DiskTierOptions options;
  FileLayer system;
  FileLayer& files;
  const SegmentIdentity identity;
  const PartFile part_file;
  Arena arena;
  const CacheGeometry* geometry = nullptr;

  std::mutex stop_mutex;
  std::condition_variable stop;
  bool stopping = false;
  std::thread watch;

  std::mutex index_mutex;  // of writing entries; taken before the other
  mutable std::mutex mutex;
  EventSink* events = nullptr;
  std::unordered_map<KnownPart, Place, PartHash> parts;
  std::map<int32_t, Segment> segments;
  std::map<std::string, SegmentName> others;  // by stem: of other fingerprints, or not readable
  int32_t next_segment = 0;
  int32_t active = -1;
  PagesKnown news;  // that `events` has not been told
  DiskTierStats figures;
  std::string locked_out;  // why segments of this fingerprint cannot be read
  int64_t warned_us = -kWarnEveryUs;
  MoveQueue queue;  // last: its threads use the rest
};

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
    std::lock_guard lock(s.stop_mutex);
    s.stopping = true;
  }
  s.stop.notify_all();
  s.queue.Stop();
  if (s.watch.joinable()) s.watch.join();
  for (auto& [id, segment] : s.segments) {
    ::close(segment.pages);
    ::close(segment.index);
  }
}

Status DiskTier::State::Open() {
  if (!on_disk()) return {};
  std::error_code error;
  if (!std::filesystem::exists(options.directory, error)) {
    std::filesystem::create_directories(options.directory, error);
    if (error) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}: cannot be made: {}", options.directory, error.message()),
                   "cache_dir"};
    }
    std::filesystem::permissions(options.directory, std::filesystem::perms::owner_all, error);
  }
  if (::access(options.directory.c_str(), R_OK | W_OK | X_OK) != 0) {
    return Unusable(options.directory, "pages cannot be read and written here");
  }
  const auto listed = ListSegments(options.directory, options.fingerprint);
  if (!listed) return listed.error();
  if (const Status written = WriteLines(options.directory, options.fingerprint); !written) {
    Warn(written.error());
  }
  std::lock_guard lock(mutex);
  Look();
  if (!locked_out.empty()) {
    LogWarning(
        "cache directory {}: of a segment (perhaps of more) {}; what it has is computed again",
        options.directory, locked_out);
  }
  return {};
}

// Finds out what is there; the mutex is held. Whatever cannot be read counts for the bound only.
void DiskTier::State::Look() {
  Result<std::vector<SegmentName>> listed = ListSegments(options.directory, options.fingerprint);
  if (!listed) return Warn(listed.error());
  std::map<std::string, int32_t> known;
  for (const auto& [id, segment] : segments) known.emplace(segment.stem, id);
  others.clear();
  for (const SegmentName& name : *listed) {
    const auto at = known.find(name.stem);
    int32_t id = -1;
    if (at != known.end()) {
      id = at->second;
      known.erase(at);
    } else if (name.same) {
      const Result<int32_t> opened = OpenSegment(name);
      if (opened) id = *opened;
    }
    if (id < 0) {
      others.emplace(name.stem, name);
      continue;
    }
    Segment& segment = segments[id];
    if (segment.own) continue;
    struct stat info;
    if (::fstat(segment.pages, &info) != 0) continue;
    segment.bytes = info.st_size;
    const auto entries = ReadEntries(files, {.fd = segment.index, .pages_bytes = info.st_size},
                                     identity, segment.index_bytes);
    if (entries) {
      Learn(id, *entries);
    } else if (entries.error().code == ErrorCode::kUnavailable) {
      locked_out = entries.error().message;
    }
  }
  for (const auto& [stem, id] : known) {  // removed by another server
    if (segments[id].users == 0 && id != active) Forget(id);
  }
}

Result<int32_t> DiskTier::State::OpenSegment(const SegmentName& name) {
  Segment segment{.stem = name.stem, .used_us = name.changed_us, .parts = {}};
  segment.pages = ::open(name.pages().c_str(), O_RDWR | O_CLOEXEC);
  segment.index = ::open(name.index().c_str(), O_RDONLY | O_CLOEXEC);
  if (segment.pages < 0 || segment.index < 0) {
    const Error error = Unusable(name.stem, "a segment cannot be opened");
    if (segment.pages >= 0) ::close(segment.pages);
    if (segment.index >= 0) ::close(segment.index);
    return error;
  }
  segments.emplace(next_segment, std::move(segment));
  return next_segment++;
}

void DiskTier::State::Learn(int32_t id, const std::vector<SegmentEntry>& entries) {
  for (const SegmentEntry& e : entries) {
    const KnownPart part = part_file.PartOf(e);
    if (!parts.try_emplace(part, Place{id, e.place}).second) continue;
    segments[id].parts.push_back(part);
    news.added.push_back(part);
  }
}

void DiskTier::State::Forget(int32_t id) {
  Segment& segment = segments[id];
  for (const KnownPart& part : segment.parts) {
    const auto at = parts.find(part);
    if (at == parts.end() || at->second.segment != id) continue;
    parts.erase(at);
    ++figures.dropped;
    if (options.host == nullptr || !options.host->Has(part)) news.dropped.push_back(part);
  }
  ::close(segment.pages);
  ::close(segment.index);
  segments.erase(id);
}

// Deletes a segment that nobody uses or writes to.
bool DiskTier::State::Remove(int32_t id) {
  Segment& segment = segments[id];
  if (id == active || segment.users > 0) return false;
  if (::flock(segment.pages, LOCK_EX | LOCK_NB) != 0) return false;
  RemoveFiles(segment.stem);
  Forget(id);
  return true;
}

// Until so many bytes more stay within the bound.
Status DiskTier::State::MakeRoom(int64_t bytes) {
  const auto total = [&] {
    int64_t sum = bytes + std::ssize(options.fingerprint.lines);
    for (const auto& [id, segment] : segments) sum += segment.bytes + segment.index_bytes;
    for (const auto& [stem, name] : others) sum += name.bytes;
    return sum;
  };
  if (total() <= options.bytes_max) return {};
  std::vector<std::pair<int64_t, int32_t>> order;
  for (const auto& [id, segment] : segments) order.emplace_back(segment.used_us, id);
  std::vector<std::pair<int64_t, std::string>> foreign;
  for (const auto& [stem, name] : others) foreign.emplace_back(name.changed_us, stem);
  std::sort(order.begin(), order.end());
  std::sort(foreign.begin(), foreign.end());
  // What nobody here can read goes first.
  for (size_t i = 0; i < foreign.size() && total() > options.bytes_max; ++i) {
    const SegmentName name = others[foreign[i].second];
    const int fd = ::open(name.pages().c_str(), O_RDWR | O_CLOEXEC);
    const bool free = fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (free) {
      RemoveFiles(name.stem);
      others.erase(name.stem);
    }
    if (fd >= 0) ::close(fd);
  }
  for (size_t i = 0; i < order.size() && total() > options.bytes_max; ++i) Remove(order[i].second);
  if (total() <= options.bytes_max) return {};
  return Error{ErrorCode::kExhausted,
               fmt::format("{}: {} bytes more do not fit the bound of {}: what is there is being "
                           "used",
                           options.directory, bytes, options.bytes_max)};
}

Result<int32_t> DiskTier::State::NewSegment() {
  const std::string stem = NewSegmentStem(options.directory, options.fingerprint);
  constexpr int kMode = S_IRUSR | S_IWUSR;
  Segment segment{.stem = stem, .used_us = UnixSeconds() * 1'000'000, .own = true, .parts = {}};
  segment.pages = ::open((stem + ".pages").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  segment.index = ::open((stem + ".index").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  const std::string header = SegmentHeader(identity);
  Status status;
  if (segment.pages < 0 || segment.index < 0) {
    status = Unusable(stem, "a segment cannot be made");
  } else if (::flock(segment.pages, LOCK_EX | LOCK_NB) != 0) {
    status = Unusable(stem, "a segment cannot be locked");
  } else {
    status = WriteAll(files, segment.index, std::as_bytes(std::span(header)), 0);
  }
  if (!status) {
    if (segment.pages >= 0) ::close(segment.pages);
    if (segment.index >= 0) ::close(segment.index);
    RemoveFiles(stem);
    return status.error();
  }
  segment.index_bytes = kSegmentHeaderBytes;
  segments.emplace(next_segment, std::move(segment));
  return next_segment++;
}

// Room at the end of the segment in progress, whose user the caller is from now on.
Result<int32_t> DiskTier::State::Reserve(int64_t bytes, int64_t& offset) {
  const int64_t room = RoundUp(bytes, kStoredAlignment);
  const int64_t more = room + static_cast<int64_t>(sizeof(SegmentEntry)) + kSegmentHeaderBytes;
  if (more > options.bytes_max) {
    return Error{
        ErrorCode::kExhausted,
        fmt::format("a part of {} bytes does not fit the bound of {}", bytes, options.bytes_max)};
  }
  if (active >= 0 && segments[active].bytes > 0 && segments[active].bytes + room > SegmentBytes()) {
    ::flock(segments[active].pages, LOCK_UN);
    active = -1;
  }
  RETURN_IF_ERROR(MakeRoom(more));
  if (active < 0) {
    ASSIGN_OR_RETURN(active, NewSegment());
  }
  Segment& segment = segments[active];
  offset = segment.bytes;
  segment.bytes += room;
  segment.used_us = UnixSeconds() * 1'000'000;
  ++segment.users;
  return active;
}

Status DiskTier::State::WriteFile(const KnownPart& part, const PartPieces& pieces) {
  PartPlace place;
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += std::ssize(piece);
  int32_t id = 0;
  int fd = -1;
  {
    std::lock_guard lock(mutex);
    if (parts.contains(part)) return {};
    ASSIGN_OR_RETURN(id, Reserve(part_file.BytesOf(bytes), place.offset));
    fd = segments[id].pages;
  }
  Status status = part_file.Write(fd, part, pieces, place);
  if (status) status = WriteEntry(id, part, place);
  std::lock_guard lock(mutex);
  Segment& segment = segments[id];
  --segment.users;
  RETURN_IF_ERROR(status);
  figures.written_bytes += place.bytes + static_cast<int64_t>(sizeof(SegmentEntry));
  if (parts.try_emplace(part, Place{id, place}).second) segment.parts.push_back(part);
  return {};
}

// One after the other, so that an index has no holes, and not under the mutex: whoever reads does
// not wait for a slow disk to write.
Status DiskTier::State::WriteEntry(int32_t id, const KnownPart& part, const PartPlace& place) {
  const SegmentEntry entry = part_file.EntryOf(part, place);
  std::lock_guard writer(index_mutex);
  int fd = -1;
  int64_t offset = 0;
  {
    std::lock_guard lock(mutex);
    fd = segments[id].index;
    offset = segments[id].index_bytes;
  }
  RETURN_IF_ERROR(WriteAll(files, fd, std::as_bytes(std::span(&entry, 1)), offset));
  std::lock_guard lock(mutex);
  segments[id].index_bytes += static_cast<int64_t>(sizeof(entry));
  return {};
}

Status DiskTier::State::ReadFile(const KnownPart& part, const PartPieces& pieces) {
  Place place;
  int fd = -1;
  {
    std::lock_guard lock(mutex);
    auto at = parts.find(part);
    if (at == parts.end()) {  // another server's, or another group's, just written
      Look();
      at = parts.find(part);
    }
    if (at == parts.end()) return Error{ErrorCode::kNotFound, "the part is not there any more"};
    place = at->second;
    Segment& segment = segments[place.segment];
    ++segment.users;
    segment.used_us = UnixSeconds() * 1'000'000;
    fd = segment.pages;
  }
  const Status status = part_file.Read(fd, part, place.at, pieces);
  std::lock_guard lock(mutex);
  --segments[place.segment].users;
  if (status.ok()) {
    figures.read_bytes += place.at.bytes;
    return {};
  }
  figures.damaged += status.error().code == ErrorCode::kInvalid;
  const auto entry = parts.find(part);
  if (entry != parts.end() && entry->second.segment == place.segment) parts.erase(entry);
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
  const KnownPart name{part.key, part.kind};
  const PartPieces pieces = PiecesOf(part);
  MoveQueue::Carried carried;
  carried.status = arena.access != nullptr ? CarryByCopy(move.in(), name, pieces, carried.in_memory)
                   : move.in()             ? Read(name, pieces, carried.in_memory)
                                           : Write(name, pieces);
  std::lock_guard lock(mutex);
  (move.in() ? figures.read_us : figures.write_us) += MonotonicUs() - began_us;
  if (!carried.status) {
    ++(move.in() ? figures.read_errors : figures.write_errors);
    if (carried.status.error().code != ErrorCode::kNotFound) Warn(carried.status.error());
  }
  Tell();
  return carried;
}

// Of a device's arena: through a copy of the part, which is what is written or has been read.
Status DiskTier::State::CarryByCopy(bool in, const KnownPart& part, const PartPieces& pieces,
                                    bool& in_memory) {
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  const auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
  PartPieces here;
  std::vector<ArenaAccess::Piece> both;
  size_t at = 0;
  for (const auto& piece : pieces) {
    both.push_back({piece.data(), here.emplace_back(copy.get() + at, piece.size())});
    at += piece.size();
  }
  if (!in) {
    RETURN_IF_ERROR(arena.access->Fetch(both));
    return Write(part, here);
  }
  RETURN_IF_ERROR(Read(part, here, in_memory));
  return arena.access->Store(both);
}

// What is in memory, of what is there. What was on disk only is kept in memory too.
Status DiskTier::State::Read(const KnownPart& part, const PartPieces& pieces, bool& in_memory) {
  in_memory = options.host != nullptr && options.host->Read(part, pieces);
  if (in_memory) return {};
  if (!on_disk()) return Error{ErrorCode::kNotFound, "the part is not there any more"};
  RETURN_IF_ERROR(ReadFile(part, pieces));
  Keep(part, pieces);
  return {};
}

// To both; one that has it will do.
Status DiskTier::State::Write(const KnownPart& part, const PartPieces& pieces) {
  const bool kept = Keep(part, pieces);
  if (!on_disk()) {
    return kept ? Status() : Error{ErrorCode::kExhausted, "a part has no room in memory"};
  }
  const Status written = WriteFile(part, pieces);
  if (written || !kept) return written;
  std::lock_guard lock(mutex);
  ++figures.write_errors;
  Warn(written.error());
  return {};
}

// In memory, if there is some. What makes way there and is not on disk is gone.
bool DiskTier::State::Keep(const KnownPart& part, const PartPieces& pieces) {
  if (options.host == nullptr) return false;
  std::vector<KnownPart> gone;
  const bool kept = options.host->Write(part, pieces, gone);
  std::lock_guard lock(mutex);
  for (const KnownPart& g : gone) {
    if (!parts.contains(g)) news.dropped.push_back(g);
  }
  return kept;
}

void DiskTier::State::WatchOthers() {
  while (true) {
    {
      std::unique_lock lock(stop_mutex);
      const auto pause = std::chrono::microseconds(options.watch_us);
      if (stop.wait_for(lock, pause, [&] { return stopping; })) return;
    }
    std::lock_guard lock(mutex);
    Look();
    Tell();
  }
}

// The mutex is held.
void DiskTier::State::Tell() {
  if (events == nullptr || (news.added.empty() && news.dropped.empty())) return;
  events->Post(std::exchange(news, {}));
}

void DiskTier::State::Warn(const Error& error) {
  const int64_t now = MonotonicUs();
  if (now - warned_us < kWarnEveryUs) return;
  warned_us = now;
  LogWarning("{}: {}; what cannot be stored or read is computed again",
             on_disk() ? "cache directory " + options.directory : "pages in memory", error.message);
}

void DiskTier::Watch(EventSink& events) {
  std::lock_guard lock(state_->mutex);
  state_->events = &events;
  state_->Tell();
}

void DiskTier::Attach(const Arena& arena, const CacheGeometry& geometry) {
  state_->arena = arena;
  state_->geometry = &geometry;
}

void DiskTier::Start(const PageMove& move, EventSink& events) {
  CHECK(state_->arena.data != nullptr, "a move before Attach");
  state_->queue.Start(move, events);
}

void DiskTier::Drain() { state_->queue.Drain(); }

void DiskTier::Clear() {
  State& s = *state_;
  if (s.options.host != nullptr) s.options.host->Clear();
  std::lock_guard lock(s.mutex);
  if (s.active >= 0 && s.segments[s.active].users == 0) {
    ::flock(s.segments[s.active].pages, LOCK_UN);
    s.active = -1;
  }
  std::vector<int32_t> ids;
  for (const auto& [id, segment] : s.segments) ids.push_back(id);
  for (const int32_t id : ids) s.Remove(id);
  s.Tell();
}

DiskTierStats DiskTier::stats() const {
  const State& s = *state_;
  std::lock_guard lock(s.mutex);
  DiskTierStats stats = s.figures;
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
