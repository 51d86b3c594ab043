// The segments of a tier's directory: what is there, what makes way, where the next part goes.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "tiers/disk_tier_state.h"

namespace braid {
namespace {

Error Unusable(const std::string& path, const char* what) {
  return {ErrorCode::kInvalid, fmt::format("{}: {}: {}", path, what, std::strerror(errno)),
          "cache_dir"};
}

// Of the header and whole entries.
int64_t IndexBytes(const std::string& stem) {
  constexpr auto kEntry = static_cast<int64_t>(sizeof(SegmentEntry));
  struct stat info;
  if (::stat((stem + ".index").c_str(), &info) != 0 || info.st_size < kSegmentHeaderBytes) return 0;
  return info.st_size - (info.st_size - kSegmentHeaderBytes) % kEntry;
}

}  // namespace

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
  {
    const auto lock = Lock();
    UseLines();
  }
  Look();
  if (!locked_out.empty()) {
    LogWarning(
        "cache directory {}: of a segment (perhaps of more) {}; what it has is computed again",
        options.directory, locked_out);
  }
  return {};
}

// Finds out what is there. Whatever cannot be read counts for the bound only. The mutex is not held
// while a disk is waited for: what is in memory comes meanwhile.
void DiskTier::State::Look() {
  std::lock_guard looking(look_mutex);
  std::vector<int32_t> before;
  {
    const auto lock = Lock();
    for (const auto& [id, segment] : segments) before.push_back(id);
  }
  const Result<std::vector<SegmentName>> listed =
      ListSegments(options.directory, options.fingerprint);
  std::vector<Grown> grown;
  {
    const auto lock = Lock();
    if (!listed) {
      Warn(listed.error());
      return;
    }
    grown = Compare(*listed, before);
  }
  for (Grown& more : grown) LookInto(more);
  const auto lock = Lock();
  Tell();
}

// With what is in the directory now; `before`: segments that were known before it was listed. Those
// whose indexes have more entries.
std::vector<DiskTier::State::Grown> DiskTier::State::Compare(const std::vector<SegmentName>& listed,
                                                             const std::vector<int32_t>& before) {
  std::map<std::string, int32_t> known;
  for (const auto& [id, segment] : segments) known.emplace(segment.stem, id);
  std::set<int32_t> listed_ids;
  std::vector<Grown> grown;
  others.clear();
  for (const SegmentName& name : listed) {
    auto at = known.find(name.stem);
    if (at == known.end() && name.same && name.index_bytes > 0) {
      segments.emplace(next_segment, TierSegment{.stem = name.stem, .parts = {}});
      at = known.emplace(name.stem, next_segment++).first;
    }
    if (at == known.end()) {
      others.emplace(name.stem, name);
      continue;
    }
    listed_ids.insert(at->second);
    TierSegment& segment = segments[at->second];
    if (segment.gone) continue;
    // What others have written and used since.
    segment.used_us = std::max(segment.used_us, name.changed_us);
    segment.told_us = std::max(segment.told_us, name.changed_us);
    if (segment.own) continue;
    segment.bytes = name.bytes - name.index_bytes;
    constexpr auto kEntry = static_cast<int64_t>(sizeof(SegmentEntry));
    if (name.index_bytes - segment.index_bytes < kEntry) continue;
    grown.push_back({at->second, name, segment.index_bytes});
  }
  for (const int32_t id : before) {  // removed by another server
    const auto at = segments.find(id);
    if (at == segments.end() || listed_ids.contains(id)) continue;
    if (at->second.users == 0 && id != active) Forget(id);
  }
  return grown;
}

void DiskTier::State::LookInto(Grown& grown) {
  const SegmentName& name = grown.name;
  const int fd = ::open(name.index().c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return;
    const Error error = Unusable(name.index(), "an index cannot be opened");
    const auto lock = Lock();
    return WarnOf(grown.id, error);
  }
  const auto entries =
      ReadEntries(files, {.fd = fd, .pages = name.pages()}, identity, grown.index_bytes);
  ::close(fd);
  const auto lock = Lock();
  if (entries) {
    const auto at = segments.find(grown.id);
    if (at == segments.end() || at->second.gone) return;
    at->second.index_bytes = grown.index_bytes;
    Learn(grown.id, *entries);
  } else if (entries.error().code == ErrorCode::kUnavailable) {
    locked_out = entries.error().message;
  } else {
    WarnOf(grown.id,
           {entries.error().code, fmt::format("{}: {}", name.index(), entries.error().message)});
  }
}

// Once of each segment: it is looked into again and again.
void DiskTier::State::WarnOf(int32_t id, const Error& error) {
  const auto at = segments.find(id);
  if (at != segments.end() && !at->second.warned) at->second.warned = Warn(error);
}

void DiskTier::State::Learn(int32_t id, const std::vector<SegmentEntry>& entries) {
  for (const SegmentEntry& e : entries) {
    const KnownPart part = part_file.PartOf(e);
    if (AddPlace(part, Place{id, e.place})) news.added.push_back(part);
  }
}

// Whether the part was nowhere before. Two servers may write the same one at the same time.
bool DiskTier::State::AddPlace(const KnownPart& part, const Place& place) {
  if (!parts.try_emplace(part, place).second) {
    copies.emplace(part, place);
    return false;
  }
  segments[place.segment].parts.push_back(part);
  return true;
}

// A place of a part is of no use any more. Whether the part has another one.
bool DiskTier::State::DropPlace(const KnownPart& part, const Place& place) {
  const auto at = parts.find(part);
  if (at == parts.end()) return false;
  if (at->second.segment != place.segment || at->second.at.offset != place.at.offset) return true;
  const auto copy = copies.find(part);
  if (copy == copies.end()) return parts.erase(at), false;
  at->second = copy->second;
  segments[copy->second.segment].parts.push_back(part);
  copies.erase(copy);
  return true;
}

void DiskTier::State::ForgetParts(int32_t id) {
  std::erase_if(copies, [&](const auto& copy) { return copy.second.segment == id; });
  for (const KnownPart& part : std::exchange(segments[id].parts, {})) {
    const auto at = parts.find(part);
    if (at == parts.end() || at->second.segment != id) continue;
    if (DropPlace(part, Place(at->second))) continue;
    ++figures.dropped;
    if (options.host == nullptr || !options.host->Has(part)) news.dropped.push_back(part);
  }
}

void DiskTier::State::Forget(int32_t id) {
  ForgetParts(id);
  Close(segments[id]);
  segments.erase(id);
}

// Removes a segment that nobody uses or writes to.
bool DiskTier::State::Remove(int32_t id) {
  if (id == active || segments[id].users > 0) return false;
  if (!RemoveUnlessWritten(segments[id].stem)) return false;
  Forget(id);
  return true;
}

// What was there at the last clear, unless that is done; the mutex is held, and there is no I/O.
// Whoever still reads or writes it goes on, in files that soon have no name any more.
void DiskTier::State::ForgetCleared() {
  if (forgotten_us == cleared_us) return;
  forgotten_us = cleared_us;
  active = -1;
  for (auto& [id, segment] : segments) {
    if (segment.gone) continue;
    ForgetParts(id);
    segment.gone = true;
    ++segment.users;  // until its files are removed
    cleared.push_back(id);
  }
}

// Of a clear: segments that no look has found yet are removed as well. The mutex is held. One whose
// index is empty is only being made.
void DiskTier::State::ClearUnseen(const std::vector<SegmentName>& listed) {
  std::set<std::string> known;
  for (const auto& [id, segment] : segments) known.insert(segment.stem);
  for (const SegmentName& name : listed) {
    if (!name.same || name.index_bytes == 0 || known.contains(name.stem)) continue;
    segments.emplace(next_segment, TierSegment{.stem = name.stem,
                                               .bytes = name.bytes - name.index_bytes,
                                               .used_us = name.changed_us,
                                               .told_us = name.changed_us,
                                               .users = 1,
                                               .gone = true,
                                               .parts = {}});
    cleared.push_back(next_segment++);
    others.erase(name.stem);
  }
}

// The files of what was cleared, but those that another tier writes to: of these segments only what
// comes later is learned, for that tier may have been cleared too and remove them a little later.
void DiskTier::State::RemoveCleared() {
  std::lock_guard looking(look_mutex);
  std::vector<int32_t> ids;
  std::vector<std::pair<std::string, bool>> files_of;  // stems, and whether they are locked here
  const Result<std::vector<SegmentName>> listed =
      ListSegments(options.directory, options.fingerprint);
  {
    const auto lock = Lock();
    if (listed) {
      ClearUnseen(*listed);
    } else {
      Warn(listed.error());
    }
    ids = std::exchange(cleared, {});
    for (const int32_t id : ids) files_of.emplace_back(segments[id].stem, segments[id].index >= 0);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto& [stem, locked_here] = files_of[i];
    if (locked_here) (void)RemoveFiles(stem);
    const bool removed = locked_here || RemoveUnlessWritten(stem).ok();
    const auto lock = Lock();
    TierSegment& segment = segments[ids[i]];
    segment.gone = removed;
    if (!removed) segment.index_bytes = std::max(segment.index_bytes, IndexBytes(stem));
    Leave(ids[i]);
  }
  const auto lock = Lock();
  Tell();
}

// One of its users does not need the segment any more.
void DiskTier::State::Leave(int32_t id) {
  TierSegment& segment = segments[id];
  if (--segment.users == 0 && segment.gone) return Forget(id);
  Settle(id);
}

// One that this tier does not write to any more is unlocked when the last write has ended.
void DiskTier::State::Settle(int32_t id) {
  TierSegment& segment = segments[id];
  if (segment.index >= 0 && id != active && segment.users == 0) Close(segment);
}

// Until so many bytes more stay within the bound. What was cleared is as good as removed.
Status DiskTier::State::MakeRoom(int64_t bytes) {
  const auto total = [&] {
    int64_t sum = bytes + std::ssize(options.fingerprint.lines);
    for (const auto& [id, segment] : segments) {
      if (!segment.gone) sum += segment.bytes + segment.index_bytes;
    }
    for (const auto& [stem, name] : others) sum += name.bytes;
    return sum;
  };
  if (total() <= options.bytes_max) return {};
  std::vector<std::pair<int64_t, int32_t>> order;
  for (const auto& [id, segment] : segments) {
    if (!segment.gone) order.emplace_back(segment.used_us, id);
  }
  std::vector<std::pair<int64_t, std::string>> foreign;
  for (const auto& [stem, name] : others) foreign.emplace_back(name.changed_us, stem);
  std::sort(order.begin(), order.end());
  std::sort(foreign.begin(), foreign.end());
  // What nobody here can read goes first.
  for (size_t i = 0; i < foreign.size() && total() > options.bytes_max; ++i) {
    if (RemoveUnlessWritten(foreign[i].second)) others.erase(foreign[i].second);
  }
  for (size_t i = 0; i < order.size() && total() > options.bytes_max; ++i) Remove(order[i].second);
  if (total() <= options.bytes_max) return {};
  return Error{ErrorCode::kExhausted,
               fmt::format("{}: {} bytes more do not fit the bound of {}: what is there is being "
                           "used",
                           options.directory, bytes, options.bytes_max)};
}

// Also with each segment: somebody may have removed the file meanwhile.
void DiskTier::State::UseLines() {
  const Result<int> used = braid::UseLines(options.directory, options.fingerprint);
  if (!used) {
    Warn(used.error());
    return;
  }
  if (lines >= 0) ::close(lines);
  lines = *used;
}

Result<int32_t> DiskTier::State::NewSegment() {
  UseLines();
  const std::string stem = NewSegmentStem(options.directory, options.fingerprint);
  ASSIGN_OR_RETURN(const SegmentFiles made, CreateSegment(files, stem, identity));
  const int64_t now_us = UnixUs();
  segments.emplace(next_segment, TierSegment{.stem = stem,
                                             .pages = made.pages,
                                             .index = made.index,
                                             .index_bytes = kSegmentHeaderBytes,
                                             .used_us = now_us,
                                             .told_us = now_us,
                                             .own = true,
                                             .parts = {}});
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
    Settle(std::exchange(active, -1));
  }
  RETURN_IF_ERROR(MakeRoom(more));
  if (active < 0) {
    ASSIGN_OR_RETURN(active, NewSegment());
  }
  TierSegment& segment = segments[active];
  offset = segment.bytes;
  segment.bytes += room;
  segment.used_us = UnixUs();
  ++segment.users;
  return active;
}

}  // namespace braid
