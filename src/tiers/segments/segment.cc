// See the header.
#include "tiers/segments/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "base/check.h"
#include "base/rng.h"
#include "base/system/file.h"
#include "base/system/secure_random.h"

namespace braid {
namespace {

static_assert(std::endian::native == std::endian::little, "segments are little-endian");

constexpr std::string_view kMagic = "braidpg2";
constexpr size_t kLinesBytesMax = 1 << 16;
constexpr int kLinesAttempts = 10;  // of using them, while others remove the file
constexpr size_t kDigits = 32;      // of a fingerprint
constexpr size_t kNameDigits = 16;  // of them, in a file's name
constexpr size_t kKeyDigits = 16;
constexpr std::string_view kRankName = "the rank: ", kOnlyRank = "0 of 1";

std::string_view CommonLines(std::string_view lines) {
  const size_t end = lines.find("\n\n");
  return end == std::string_view::npos ? lines : lines.substr(0, end + 1);
}

std::string DigitsOf(std::string_view text) {
  unsigned char sum[EVP_MAX_MD_SIZE];
  CHECK(EVP_Digest(text.data(), text.size(), sum, nullptr, EVP_sha256(), nullptr) == 1,
        "OpenSSL cannot compute SHA-256");
  std::string digits;
  for (size_t i = 0; i < kDigits / 2; ++i) digits += fmt::format("{:02x}", sum[i]);
  return digits;
}

uint64_t BytesSum(std::span<const std::byte> data) {
  PartSum sum({}, 0);
  sum.Add(data);
  return sum.End();
}

uint64_t CheckOf(const SegmentEntry& entry) {
  return BytesSum(std::as_bytes(std::span(&entry, 1)).first(sizeof(entry) - 8));
}

Error Failed(const char* what, int error) {
  return {ErrorCode::kInternal, fmt::format("{}: {}", what, std::strerror(error)), "cache_dir"};
}

std::string LinesPath(const std::string& directory, std::string_view name_digits) {
  return fmt::format("{}/{}.fingerprint", directory, name_digits);
}

// Whether the file that is open still has the path: others remove it, or put another one there.
bool IsAt(int fd, const std::string& path) {
  struct stat open, named;
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// A descriptor with the lock that servers have a share of; -1: they use the file, or it is gone.
int OpenUnusedLines(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0 || (::flock(fd, LOCK_EX | LOCK_NB) == 0 && IsAt(fd, path))) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

TierFingerprint::TierFingerprint(const std::string& common_lines, const std::string& local_lines)
    : lines(local_lines.empty() ? common_lines : common_lines + '\n' + local_lines),
      digits(DigitsOf(lines)),
      portable(DigitsOf(PortableLines(lines))) {}

TierFingerprint TierFingerprint::Of(const std::string& lines) {
  const std::string common(CommonLines(lines));
  return TierFingerprint(common, lines.substr(std::min(lines.size(), common.size() + 1)));
}

TierFingerprint TierFingerprint::OfRank(int32_t rank, int32_t ranks) const {
  const bool local = CommonLines(lines).size() < lines.size();
  return Of(fmt::format("{}{}{}{} of {}\n", lines, local ? "" : "\n", kRankName, rank, ranks));
}

std::string PortableLines(std::string_view lines) {
  std::string portable(CommonLines(lines));
  const std::string_view rank = RankOf(lines);
  if (!rank.empty()) portable += fmt::format("\n{}{}\n", kRankName, rank);
  return portable;
}

std::string_view RankOf(std::string_view lines) {
  lines.remove_prefix(CommonLines(lines).size());
  const size_t at = lines.find(fmt::format("\n{}", kRankName));
  if (at == std::string_view::npos) return {};
  lines.remove_prefix(at + 1 + kRankName.size());
  lines = lines.substr(0, lines.find('\n'));
  return lines == kOnlyRank ? std::string_view() : lines;
}

PartSum::PartSum(const PageKey& key, uint32_t kind) {
  uint64_t seed = MixBits(key.low ^ MixBits(key.high + kind));
  for (uint64_t& lane : lanes_) lane = seed = MixBits(seed + 1);
}

// Each lane takes every eighth word by a bijection, so one changed word always changes the sum.
void PartSum::Take(const std::byte* data) {
  uint64_t words[kLanes];
  std::memcpy(words, data, sizeof(words));
  for (size_t i = 0; i < kLanes; ++i) {
    lanes_[i] = (lanes_[i] ^ words[i]) * 0x9fb21c651e98df25ull;
    lanes_[i] ^= lanes_[i] >> 29;
  }
}

void PartSum::Add(std::span<const std::byte> data) {
  const size_t have = size_ % sizeof(rest_);
  size_ += data.size();
  if (have > 0) {
    const size_t more = std::min(data.size(), sizeof(rest_) - have);
    std::memcpy(rest_ + have, data.data(), more);
    data = data.subspan(more);
    if (have + more < sizeof(rest_)) return;
    Take(rest_);
  }
  for (; data.size() >= sizeof(rest_); data = data.subspan(sizeof(rest_))) Take(data.data());
  if (!data.empty()) std::memcpy(rest_, data.data(), data.size());
}

uint64_t PartSum::End() {
  const size_t have = size_ % sizeof(rest_);
  if (have > 0) {
    std::memset(rest_ + have, 0, sizeof(rest_) - have);
    Take(rest_);
  }
  uint64_t sum = size_;
  for (const uint64_t lane : lanes_) sum = MixBits(sum ^ lane);
  return sum;
}

std::string SegmentHeader(const SegmentIdentity& identity) {
  std::string header(kMagic);
  header += identity.digits;
  header += identity.key_id.empty() ? std::string(kKeyDigits, '-') : identity.key_id;
  CHECK(header.size() == kSegmentHeaderBytes - 8);
  const uint64_t check = BytesSum(std::as_bytes(std::span(header)));
  header.append(reinterpret_cast<const char*>(&check), sizeof(check));
  return header;
}

std::optional<SegmentIdentity> ParseHeader(std::string_view header) {
  if (header.size() != kSegmentHeaderBytes || !header.starts_with(kMagic)) return {};
  SegmentIdentity identity{std::string(header.substr(kMagic.size(), kDigits)),
                           std::string(header.substr(kMagic.size() + kDigits, kKeyDigits))};
  if (identity.key_id == std::string(kKeyDigits, '-')) identity.key_id.clear();
  if (SegmentHeader(identity) != header) return {};
  return identity;
}

bool OfOtherVersion(std::string_view header) {
  return header.starts_with(kMagic.substr(0, kMagic.size() - 1)) && !header.starts_with(kMagic);
}

void Seal(SegmentEntry& entry) { entry.check = CheckOf(entry); }

Result<std::vector<SegmentEntry>> ReadEntries(FileLayer& files, const IndexFile& file,
                                              const SegmentIdentity& identity, int64_t& begin) {
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return Failed("the size of an index", errno);
  std::vector<SegmentEntry> entries;
  // Also where entries are skipped: nobody has read the header of what was cleared unseen.
  if (info.st_size < kSegmentHeaderBytes) return entries;
  std::string header(kSegmentHeaderBytes, 0);
  RETURN_IF_ERROR(ReadAll(files, file.fd, std::as_writable_bytes(std::span(header)), 0));
  const std::optional<SegmentIdentity> found = ParseHeader(header);
  if (!found || found->digits != identity.digits) {
    return Error{ErrorCode::kInvalid, "its header is not of this program and fingerprint"};
  }
  if (*found != identity) {
    const auto text = [](const std::string& id) { return id.empty() ? "no key" : "key " + id; };
    return Error{ErrorCode::kUnavailable,
                 fmt::format("its pages are encrypted with {}, here is {}", text(found->key_id),
                             text(identity.key_id))};
  }
  begin = std::max(begin, kSegmentHeaderBytes);
  constexpr auto kEntry = static_cast<int64_t>(sizeof(SegmentEntry));
  const int64_t count = (info.st_size - begin) / kEntry;
  if (count <= 0) return entries;
  entries.resize(static_cast<size_t>(count));
  RETURN_IF_ERROR(ReadAll(files, file.fd, std::as_writable_bytes(std::span(entries)), begin));
  // Afterwards: parts are written before their entries.
  if (::stat(file.pages.c_str(), &info) != 0) return Failed("the size of a segment", errno);
  const auto bad = [&](const SegmentEntry& e) {
    const PartPlace& at = e.place;
    return e.check != CheckOf(e) || at.kind > 1 || at.offset < 0 || at.bytes <= 0 ||
           at.bytes > info.st_size || at.offset > info.st_size - at.bytes;
  };
  while (!entries.empty() && bad(entries.back())) entries.pop_back();
  begin += std::ssize(entries) * kEntry;
  std::erase_if(entries, bad);
  return entries;
}

Result<std::vector<SegmentName>> ListSegments(const std::string& directory,
                                              const TierFingerprint& fingerprint) {
  std::vector<SegmentName> names;
  std::error_code error;
  const std::string prefix = fingerprint.digits.substr(0, kNameDigits) + '.';
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    const std::filesystem::path& path = at->path();
    if (path.extension() != ".pages") continue;
    SegmentName name{.stem = (path.parent_path() / path.stem()).string()};
    struct stat pages, index;
    if (::stat(name.pages().c_str(), &pages) != 0 || !S_ISREG(pages.st_mode)) continue;
    name.bytes = pages.st_size;
    if (::stat(name.index().c_str(), &index) == 0) name.index_bytes = index.st_size;
    name.bytes += name.index_bytes;
    name.changed_us = pages.st_mtim.tv_sec * 1'000'000 + pages.st_mtim.tv_nsec / 1000;
    name.same = !fingerprint.digits.empty() && path.stem().string().starts_with(prefix);
    names.push_back(std::move(name));
  }
  if (error) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: {}", directory, error.message()),
                 "cache_dir"};
  }
  std::sort(names.begin(), names.end(),
            [](const SegmentName& a, const SegmentName& b) { return a.stem < b.stem; });
  return names;
}

std::string NewSegmentStem(const std::string& directory, const TierFingerprint& fingerprint) {
  return fmt::format("{}/{}.{}", directory, fingerprint.digits.substr(0, kNameDigits),
                     SecureRandomHex(8));
}

std::string SegmentName::name_digits() const {
  return std::filesystem::path(stem).filename().string().substr(0, kNameDigits);
}

std::string ReadLines(const std::string& directory, std::string_view name_digits) {
  const Result<std::string> lines = ReadFile(LinesPath(directory, name_digits), kLinesBytesMax);
  if (!lines || !DigitsOf(*lines).starts_with(name_digits)) return {};
  return *lines;
}

Status RemoveFiles(const std::string& stem) {
  // The index first: without it the pages are nobody's.
  for (const char* end : {".index", ".pages"}) {
    const std::string path = stem + end;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Failed(path.c_str(), errno);
  }
  return {};
}

Status RemoveUnlessWritten(const std::string& stem) {
  const std::string path = stem + ".pages";
  const int pages = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (pages < 0) return errno == ENOENT ? Status() : Failed(path.c_str(), errno);
  const bool free = ::flock(pages, LOCK_EX | LOCK_NB) == 0;
  const Status status =
      free ? RemoveFiles(stem) : Error{ErrorCode::kUnavailable, path + ": somebody writes to it"};
  ::close(pages);
  return status;
}

Result<SegmentFiles> CreateSegment(FileLayer& files, const std::string& stem,
                                   const SegmentIdentity& identity) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode = S_IRUSR | S_IWUSR;
  const SegmentFiles made{::open((stem + ".pages").c_str(), kFlags, kMode),
                          ::open((stem + ".index").c_str(), kFlags, kMode)};
  Status status;
  if (made.pages < 0 || made.index < 0 || ::flock(made.pages, LOCK_EX | LOCK_NB) != 0) {
    status = Failed("making a segment", errno);
  } else {
    const std::string header = SegmentHeader(identity);
    status = WriteAll(files, made.index, std::as_bytes(std::span(header)), 0);
  }
  if (status) return made;
  if (made.pages >= 0) ::close(made.pages);
  if (made.index >= 0) ::close(made.index);
  (void)RemoveFiles(stem);
  return status.error();
}

Result<int> UseLines(const std::string& directory, const TierFingerprint& fingerprint) {
  const std::string path = LinesPath(directory, fingerprint.digits.substr(0, kNameDigits));
  for (int attempt = 0; attempt < kLinesAttempts; ++attempt) {
    const Result<std::string> present = ReadFile(path, kLinesBytesMax);
    if (!present || *present != fingerprint.lines) {
      RETURN_IF_ERROR(WriteFile(path, fingerprint.lines));
      ::chmod(path.c_str(), S_IRUSR | S_IWUSR);
    }
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) return Failed("the lines of a fingerprint", errno);
    // `braid cache` holds all of the lock for a moment, and may remove the file then.
    while (::flock(fd, LOCK_SH) != 0 && errno == EINTR) continue;
    ::futimens(fd, nullptr);
    if (IsAt(fd, path)) return fd;
    ::close(fd);
  }
  return Failed("the lines of a fingerprint", ENOENT);
}

Result<std::vector<LinesFile>> ListLines(const std::string& directory) {
  std::vector<LinesFile> all;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() != ".fingerprint") continue;
    struct stat info;
    if (::stat(at->path().c_str(), &info) != 0) continue;
    const int fd = OpenUnusedLines(at->path().string());
    all.push_back({.name_digits = at->path().stem().string(),
                   .used = fd < 0,
                   .changed_us = info.st_mtim.tv_sec * 1'000'000 + info.st_mtim.tv_nsec / 1000});
    if (fd >= 0) ::close(fd);
  }
  if (error) return Error{ErrorCode::kInvalid, fmt::format("{}: {}", directory, error.message())};
  std::ranges::sort(all, [](const LinesFile& a, const LinesFile& b) {
    return std::tie(a.used, a.changed_us, a.name_digits) >
           std::tie(b.used, b.changed_us, b.name_digits);
  });
  return all;
}

void RemoveUnusedLines(const std::string& directory, const std::string& name_digits) {
  const std::string path = LinesPath(directory, name_digits);
  const int fd = OpenUnusedLines(path);
  if (fd < 0) return;
  ::unlink(path.c_str());
  ::close(fd);
}

Status ReadAll(FileLayer& files, int fd, std::span<std::byte> out, int64_t offset) {
  while (!out.empty()) {
    const int64_t done = files.ReadAt(fd, out.data(), out.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return Failed("reading a segment", errno);
    if (done == 0) return Error{ErrorCode::kInternal, "reading a segment: it ends too early"};
    out = out.subspan(static_cast<size_t>(done));
    offset += done;
  }
  return {};
}

Status WriteAll(FileLayer& files, int fd, std::span<const std::byte> data, int64_t offset) {
  while (!data.empty()) {
    const int64_t done = files.WriteAt(fd, data.data(), data.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return Failed("writing a segment", done < 0 ? errno : ENOSPC);
    data = data.subspan(static_cast<size_t>(done));
    offset += done;
  }
  return {};
}

}  // namespace braid
