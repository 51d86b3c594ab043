// See the header.
#include "tiers/inspect.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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
  Descriptor(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

std::optional<SegmentIdentity> IdentityOf(FileLayer& files, int index) {
  std::string header(kSegmentHeaderBytes, 0);
  if (!ReadAll(files, index, std::as_writable_bytes(std::span(header)), 0)) return {};
  return ParseHeader(header);
}

SegmentFacts FactsOf(FileLayer& files, const SegmentName& name) {
  SegmentFacts facts{.name = name, .identity = {}, .entries = {}};
  const Descriptor pages(name.pages(), O_RDONLY), index(name.index(), O_RDONLY);
  if (pages.fd() >= 0) {
    facts.written_to = ::flock(pages.fd(), LOCK_SH | LOCK_NB) != 0;
    if (!facts.written_to) ::flock(pages.fd(), LOCK_UN);
  }
  if (index.fd() < 0 || pages.fd() < 0) return facts;
  facts.identity = IdentityOf(files, index.fd());
  if (!facts.identity) return facts;
  int64_t begin = 0;
  auto entries =
      ReadEntries(files, {.fd = index.fd(), .pages = name.pages()}, *facts.identity, begin);
  if (entries) facts.entries = *std::move(entries);
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
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: {}", segment.name.pages(), std::strerror(errno))};
  }
  int64_t damaged = 0;
  std::vector<std::byte> scratch;
  for (const SegmentEntry& entry : segment.entries) {
    damaged += !VerifyPart(files, pages.fd(), entry, scratch).ok();
    progress(entry.place.bytes);
  }
  return damaged;
}

bool RemoveSegment(const SegmentFacts& segment) { return RemoveUnlessWritten(segment.name.stem); }

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
