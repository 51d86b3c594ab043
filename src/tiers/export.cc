// See the header. A file: kMagic, the sizes of the lines and of the entries (8 bytes each), their
// sum, the segment's header, the lines, the entries, and the parts one after the other.
#include "tiers/export.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "base/block.h"
#include "base/math.h"
#include "base/system/new_file.h"
#include "tiers/inspect.h"
#include "tiers/part_file.h"

namespace braid {
namespace {

constexpr char kMagic[8] = {'b', 'r', 'a', 'i', 'd', 'c', 'v', '1'};
constexpr int64_t kLinesBytesMax = 1 << 16, kEntriesBytesMax = int64_t{1} << 32;
constexpr int64_t kAlignment = 4096;

struct Head {
  char magic[8];
  int64_t lines_bytes = 0, entries_bytes = 0;
  uint64_t sum = 0;  // of the rest up to the parts
  char segment[kSegmentHeaderBytes];
};

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, S_IRUSR | S_IWUSR)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

Error Bad(const std::string& path, const std::string& what) {
  return {ErrorCode::kInvalid, fmt::format("{}: {}", path, what)};
}
Error Failed(const std::string& path) {
  return {ErrorCode::kInternal, fmt::format("{}: {}", path, std::strerror(errno))};
}

template <class T>
std::span<const std::byte> BytesOf(const T& values) {
  return std::as_bytes(std::span(values));
}

uint64_t SumOf(const Head& head, std::string_view lines, std::span<const SegmentEntry> entries) {
  PartSum sum({}, 0);
  sum.Add(std::as_bytes(std::span(head.segment)));
  sum.Add(BytesOf(lines));
  sum.Add(BytesOf(entries));
  return sum.End();
}

// Where the parts of a prefix lie.
struct Found {
  const SegmentFacts* segment = nullptr;
  SegmentEntry entry;
};
using Parts = std::vector<Found>;

// Of one fingerprint, as far as one can resume: up to the last state, if it has states.
Parts Follow(const std::map<KnownPart, Found>& parts, const std::vector<PageKey>& keys,
             int64_t& tokens) {
  const bool has_keys = std::any_of(parts.begin(), parts.end(), [](const auto& part) {
    return part.first.kind == GroupKind::kFull;
  });
  const bool has_states = std::any_of(parts.begin(), parts.end(), [](const auto& part) {
    return part.first.kind == GroupKind::kState;
  });
  Parts taken;
  size_t resumable = 0;
  tokens = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto full = parts.find({keys[i], GroupKind::kFull});
    const auto state = parts.find({keys[i], GroupKind::kState});
    if (has_keys && full == parts.end()) break;
    if (has_keys) taken.push_back(full->second);
    if (state != parts.end()) taken.push_back(state->second);
    if (has_states && state == parts.end()) continue;
    resumable = taken.size();
    tokens = static_cast<int64_t>(i + 1) * kBlockTokens;
  }
  taken.resize(resumable);
  return taken;
}

std::vector<PageKey> KeysOf(const ExportRequest& request) {
  std::vector<PageKey> keys;
  PageKey key = RootPageKey(request.tenant, request.salt);
  for (size_t at = 0; at + kBlockTokens <= request.tokens.size(); at += kBlockTokens) {
    BlockTokens block;
    std::copy_n(request.tokens.begin() + static_cast<ptrdiff_t>(at), kBlockTokens, block.begin());
    key = ChildPageKey(key, block);
    keys.push_back(key);
  }
  return keys;
}

Status CopyParts(FileLayer& files, const Parts& parts, const NewFile& out, int64_t at,
                 const std::function<void(double)>& progress) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < parts.size(); ++i) {
    const PartPlace& place = parts[i].entry.place;
    const std::string path = parts[i].segment->name.pages();
    const OpenFile in(path, O_RDONLY);
    if (in.fd() < 0) return Failed(path);
    RETURN_IF_ERROR(VerifyPart(files, in.fd(), parts[i].entry, bytes));
    bytes.resize(static_cast<size_t>(place.bytes));
    RETURN_IF_ERROR(ReadAll(files, in.fd(), bytes, place.offset));
    RETURN_IF_ERROR(out.Write(at, bytes));
    at += place.bytes;
    progress(static_cast<double>(i + 1) / static_cast<double>(parts.size()));
  }
  return {};
}

// Whether pages that lie in `home`, below the directory or itself, are all that there are.
Status IsWhole(const std::string& directory, const std::string& home, std::string_view lines) {
  std::error_code none;
  if (RankOf(lines).empty() || std::filesystem::equivalent(home, directory, none)) return {};
  return Bad(directory, fmt::format("it has the pages of several ranks, each with its own heads in "
                                    "a folder of its own: export each folder ({} and the others), "
                                    "and import each file into the folder of the same rank",
                                    home));
}

}  // namespace

Result<Exported> ExportPages(const ExportRequest& request) {
  FileLayer files;
  ASSIGN_OR_RETURN(const std::vector<SegmentFacts> segments,
                   InspectDirectory(files, request.directory));
  const std::vector<PageKey> keys = KeysOf(request);
  // By fingerprint: parts under their plain keys.
  const std::string key_id = request.cipher != nullptr ? request.cipher->id() : "";
  std::map<std::string, std::map<KnownPart, Found>> all;
  int64_t locked = 0;
  for (const SegmentFacts& segment : segments) {
    const std::string digits = segment.name.name_digits();
    if (!segment.identity || !digits.starts_with(request.fingerprint)) continue;
    locked += segment.identity->key_id != key_id;
    if (segment.identity->key_id != key_id) continue;
    const PartFile plain(files, "", request.cipher);
    for (const SegmentEntry& entry : segment.entries) {
      all[digits].try_emplace(plain.PartOf(entry), Found{&segment, entry});
    }
  }
  Exported best;
  Parts parts;
  for (const auto& [digits, of] : all) {
    int64_t tokens = 0;
    Parts taken = Follow(of, keys, tokens);
    if (tokens <= best.tokens) continue;
    best.fingerprint = digits;
    best.tokens = tokens;
    parts = std::move(taken);
  }
  if (parts.empty()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} has no pages that begin with these {} tokens{}", request.directory,
                             request.tokens.size(),
                             locked > 0 ? fmt::format("; {} segments need another key", locked)
                                        : std::string())};
  }
  const std::string home =
      std::filesystem::path(parts[0].segment->name.stem).parent_path().string();
  const std::string lines = PortableLines(ReadLines(home, best.fingerprint));
  if (lines.empty()) return Bad(home, "the lines of " + best.fingerprint + " are not there");
  RETURN_IF_ERROR(IsWhole(request.directory, home, lines));
  std::vector<SegmentEntry> entries;
  for (const Found& part : parts) {
    SegmentEntry entry = part.entry;
    entry.place.offset = best.bytes;
    best.bytes += entry.place.bytes;
    Seal(entry);
    entries.push_back(entry);
  }
  best.parts = std::ssize(parts);
  Head head{.lines_bytes = std::ssize(lines),
            .entries_bytes = best.parts * int64_t{sizeof(SegmentEntry)}};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  const std::string segment = SegmentHeader(*parts[0].segment->identity);
  std::memcpy(head.segment, segment.data(), segment.size());
  head.sum = SumOf(head, lines, entries);
  ASSIGN_OR_RETURN(NewFile out, NewFile::Create(request.to, S_IRUSR | S_IWUSR));
  int64_t at = 0;
  for (const std::span<const std::byte> bytes :
       {BytesOf(std::span(&head, 1)), BytesOf(lines), BytesOf(entries)}) {
    RETURN_IF_ERROR(out.Write(at, bytes));
    at += std::ssize(bytes);
  }
  RETURN_IF_ERROR(CopyParts(files, parts, out, at, request.progress));
  RETURN_IF_ERROR(out.Finish());
  return best;
}

namespace {

struct Read {
  Head head;
  std::string lines;
  std::vector<SegmentEntry> entries;
  int64_t begin = 0;  // of the parts
};

Result<Read> ReadHead(FileLayer& files, int fd, const std::string& path) {
  const Error damaged = Bad(path, "it is not a file of `braid cache export`, or it is damaged");
  Read read;
  if (!ReadAll(files, fd, std::as_writable_bytes(std::span(&read.head, 1)), 0)) return damaged;
  const Head& head = read.head;
  if (std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0 || head.lines_bytes < 0 ||
      head.lines_bytes > kLinesBytesMax || head.entries_bytes <= 0 ||
      head.entries_bytes > kEntriesBytesMax || head.entries_bytes % sizeof(SegmentEntry) != 0) {
    return damaged;
  }
  struct stat info;
  read.begin = int64_t{sizeof(head)} + head.lines_bytes + head.entries_bytes;
  if (::fstat(fd, &info) != 0 || info.st_size < read.begin) return damaged;
  read.lines.resize(static_cast<size_t>(head.lines_bytes));
  read.entries.resize(static_cast<size_t>(head.entries_bytes) / sizeof(SegmentEntry));
  if (!ReadAll(files, fd, std::as_writable_bytes(std::span(read.lines)), sizeof(head)) ||
      !ReadAll(files, fd, std::as_writable_bytes(std::span(read.entries)),
               int64_t{sizeof(head)} + head.lines_bytes) ||
      SumOf(head, read.lines, read.entries) != head.sum) {
    return damaged;
  }
  for (const SegmentEntry& e : read.entries) {
    const int64_t room = info.st_size - read.begin;
    if (e.place.offset < 0 || e.place.bytes <= 0 || e.place.bytes > room ||
        e.place.offset > room - e.place.bytes) {
      return damaged;
    }
  }
  return read;
}

using NamedLines = std::map<std::string_view, std::string_view>;
NamedLines Named(std::string_view lines) {
  NamedLines named;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const size_t colon = line.find(": ");
    if (colon != std::string_view::npos) named[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return named;
}

// How many differ, and which, in words.
std::pair<size_t, std::string> DifferencesOf(const NamedLines& file, const NamedLines& directory) {
  std::set<std::string_view> names;
  for (const NamedLines* lines : {&file, &directory}) {
    for (const auto& [name, value] : *lines) names.insert(name);
  }
  const auto value_in = [](const NamedLines& lines, std::string_view name) {
    const auto at = lines.find(name);
    return at == lines.end() ? std::string_view("nothing") : at->second;
  };
  std::string text;
  size_t count = 0;
  for (const std::string_view name : names) {
    if (value_in(file, name) == value_in(directory, name)) continue;
    text += fmt::format("{}{} is {} in the file and {} in the directory", count++ > 0 ? "; " : "",
                        name, value_in(file, name), value_in(directory, name));
  }
  return {count, text};
}

// The fingerprint of the directory that the file's pages are for; or what differs in the nearest.
// Of several that differ in what holds here only, as after the weights' files were touched, the one
// that servers read.
Result<TierFingerprint> FingerprintFor(const Read& file, const std::string& from,
                                       const std::string& directory) {
  size_t fewest = ~size_t{0};
  std::string differs;
  ASSIGN_OR_RETURN(const std::vector<LinesFile> all, ListLines(directory));
  for (const LinesFile& of : all) {
    const std::string lines = ReadLines(directory, of.name_digits);
    if (lines.empty()) continue;
    const std::string portable = PortableLines(lines);
    if (portable == file.lines) return TierFingerprint::Of(lines);
    const auto [count, text] = DifferencesOf(Named(file.lines), Named(portable));
    if (count < fewest) {
      fewest = count;
      differs = text;
    }
  }
  if (differs.empty()) {
    return Bad(directory,
               "no server has used it yet; start one with --cache-dir, so that the "
               "directory knows its fingerprint");
  }
  return Bad(from, "its pages are of another fingerprint: " + differs);
}

// A segment of its own, locked until it is whole.
Status WriteSegment(FileLayer& files, const Read& file, int in, const SegmentIdentity& identity,
                    const std::string& stem, const std::function<void(double)>& progress) {
  const OpenFile pages(stem + ".pages", O_RDWR | O_CREAT | O_EXCL);
  const OpenFile index(stem + ".index", O_RDWR | O_CREAT | O_EXCL);
  if (pages.fd() < 0 || index.fd() < 0 || ::flock(pages.fd(), LOCK_EX | LOCK_NB) != 0) {
    return Failed(stem);
  }
  const std::string header = SegmentHeader(identity);
  RETURN_IF_ERROR(WriteAll(files, index.fd(), BytesOf(header), 0));
  std::vector<std::byte> bytes;
  int64_t at = 0, entry_at = kSegmentHeaderBytes;
  for (size_t i = 0; i < file.entries.size(); ++i) {
    SegmentEntry entry = file.entries[i];
    entry.place.offset += file.begin;
    RETURN_IF_ERROR(VerifyPart(files, in, entry, bytes));
    bytes.resize(static_cast<size_t>(entry.place.bytes));
    RETURN_IF_ERROR(ReadAll(files, in, bytes, entry.place.offset));
    entry.place.offset = at;
    RETURN_IF_ERROR(WriteAll(files, pages.fd(), bytes, at));
    at += RoundUp(entry.place.bytes, kAlignment);
    Seal(entry);
    RETURN_IF_ERROR(WriteAll(files, index.fd(), BytesOf(std::span(&entry, 1)), entry_at));
    entry_at += int64_t{sizeof(entry)};
    progress(static_cast<double>(i + 1) / static_cast<double>(file.entries.size()));
  }
  return {};
}

}  // namespace

Result<Exported> ImportPages(const std::string& from, const std::string& directory,
                             const std::function<void(double)>& progress) {
  FileLayer files;
  const OpenFile in(from, O_RDONLY);
  if (in.fd() < 0) return Failed(from);
  ASSIGN_OR_RETURN(const Read file, ReadHead(files, in.fd(), from));
  const auto source = ParseHeader(std::string_view(file.head.segment, kSegmentHeaderBytes));
  if (!source) return Bad(from, "its header is damaged");
  ASSIGN_OR_RETURN(const TierFingerprint fingerprint, FingerprintFor(file, from, directory));
  const std::string stem = NewSegmentStem(directory, fingerprint);
  const Status written =
      WriteSegment(files, file, in.fd(), {fingerprint.digits, source->key_id}, stem, progress);
  if (!written) {
    (void)RemoveFiles(stem);
    return Error{written.error().code, fmt::format("{}: {}", from, written.error().message)};
  }
  Exported done{.fingerprint = fingerprint.digits.substr(0, 16), .parts = std::ssize(file.entries)};
  for (const SegmentEntry& entry : file.entries) {
    done.bytes += entry.place.bytes;
    if (static_cast<GroupKind>(entry.place.kind) == GroupKind::kFull) done.tokens += kBlockTokens;
  }
  return done;
}

}  // namespace braid
