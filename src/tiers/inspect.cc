// See the header.
#include "tiers/inspect.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tiers/part_file.h"

namespace braid {
namespace {

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC)), error_(fd_ < 0 ? errno : 0) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }
  int error() const { return error_; }  // of opening it

 private:
  const int fd_, error_;
};

// Into `facts`. Entries at the end that a server is about to write are no damage.
Status ReadIndex(FileLayer& files, int index, SegmentFacts& facts) {
  std::string header(kSegmentHeaderBytes, 0);
  RETURN_IF_ERROR(ReadAll(files, index, std::as_writable_bytes(std::span(header)), 0));
  facts.identity = ParseHeader(header);
  if (!facts.identity) {
    if (OfOtherVersion(header)) return {};
    return Error{ErrorCode::kInvalid, "its header is damaged"};
  }
  int64_t end = 0;
  const IndexFile file{.fd = index, .pages = facts.name.pages()};
  ASSIGN_OR_RETURN(facts.entries, ReadEntries(files, file, *facts.identity, end));
  struct stat info;
  if (!facts.written_to && ::fstat(index, &info) == 0) end = info.st_size;
  const int64_t all = (end - kSegmentHeaderBytes) / static_cast<int64_t>(sizeof(SegmentEntry));
  const int64_t damaged = all - std::ssize(facts.entries);
  if (damaged <= 0) return {};
  return Error{ErrorCode::kInvalid, fmt::format("{} of {} entries are damaged", damaged, all)};
}

// The index is opened first: whoever removes a segment holds the lock of its pages, and removes the
// index before them.
SegmentFacts FactsOf(FileLayer& files, const SegmentName& name) {
  SegmentFacts facts{.name = name, .identity = {}, .entries = {}};
  const Descriptor index(name.index(), O_RDONLY), pages(name.pages(), O_RDONLY);
  const auto fault = [&](const std::string& path, const std::string& why) {
    facts.fault = fmt::format("{}: {}", path, why);
  };
  if (pages.error() == ENOENT) return facts;
  if (pages.fd() < 0) {
    fault(name.pages(), std::strerror(pages.error()));
    return facts;
  }
  facts.written_to = ::flock(pages.fd(), LOCK_SH | LOCK_NB) != 0;
  if (!facts.written_to) ::flock(pages.fd(), LOCK_UN);
  const Status read = index.fd() >= 0
                          ? ReadIndex(files, index.fd(), facts)
                          : Error{ErrorCode::kInternal, std::strerror(index.error())};
  // A server that has just made the segment has not written the header yet.
  const bool made = facts.written_to && !facts.identity;
  if (!read && !made) fault(name.index(), read.error().message);
  for (const SegmentEntry& entry : facts.entries) {
    const bool state = static_cast<GroupKind>(entry.place.kind) == GroupKind::kState;
    ++(state ? facts.states : facts.keys);
  }
  return facts;
}

// The directory and those of ranks below it.
std::vector<std::string> DirectoriesOf(const std::string& directory) {
  std::vector<std::string> directories = {directory};
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    const std::filesystem::path& path = at->path();
    if (path.filename().string().starts_with("rank-") && at->is_directory(error)) {
      directories.push_back(path.string());
    }
  }
  std::sort(directories.begin() + 1, directories.end());
  return directories;
}

}  // namespace

Result<std::vector<SegmentFacts>> InspectDirectory(FileLayer& files, const std::string& directory) {
  std::vector<SegmentFacts> all;
  for (const std::string& of : DirectoriesOf(directory)) {
    ASSIGN_OR_RETURN(const std::vector<SegmentName> names, ListSegments(of, {}));
    for (const SegmentName& name : names) all.push_back(FactsOf(files, name));
  }
  return all;
}

Result<int64_t> VerifySegment(FileLayer& files, const SegmentFacts& segment,
                              const std::function<void(int64_t)>& progress) {
  const Descriptor pages(segment.name.pages(), O_RDONLY);
  if (pages.fd() < 0) {
    return Error{pages.error() == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInternal,
                 fmt::format("{}: {}", segment.name.pages(), std::strerror(pages.error()))};
  }
  int64_t damaged = 0;
  std::vector<std::byte> scratch;
  for (const SegmentEntry& entry : segment.entries) {
    damaged += !VerifyPart(files, pages.fd(), entry, scratch).ok();
    progress(entry.place.bytes);
  }
  return damaged;
}

Status RemoveSegment(const SegmentFacts& segment) { return RemoveUnlessWritten(segment.name.stem); }

Status RemoveLines(const std::string& directory, const std::string& digits) {
  for (const std::string& of : DirectoriesOf(directory)) {
    ASSIGN_OR_RETURN(const std::vector<LinesFile> all, ListLines(of));
    ASSIGN_OR_RETURN(const std::vector<SegmentName> segments, ListSegments(of, {}));
    for (const LinesFile& lines : all) {
      const bool needed = std::ranges::any_of(segments, [&](const SegmentName& segment) {
        return segment.name_digits() == lines.name_digits;
      });
      if (!needed && lines.name_digits.starts_with(digits)) {
        RemoveUnusedLines(of, lines.name_digits);
      }
    }
  }
  return {};
}

}  // namespace braid
