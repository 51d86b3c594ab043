// See the header.
#include "tiers/segment.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/rng.h"
#include "base/system/file.h"
#include "base/system/secure_random.h"

namespace braid {
namespace {

static_assert(std::endian::native == std::endian::little, "segments are little-endian");

constexpr std::string_view kMagic = "braidpg2";
constexpr size_t kLinesBytesMax = 1 << 16;
constexpr size_t kNameDigits = 16;  // of the fingerprint, in a file's name

// Each lane takes every eighth word by a bijection, so one changed word always changes the sum.
uint64_t BytesSum(std::span<const std::byte> data, uint64_t seed) {
  constexpr size_t kLanes = 8;
  uint64_t lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = MixBits(seed + i + 1);
  const auto take = [&](size_t lane, uint64_t word) {
    lanes[lane] = (lanes[lane] ^ word) * 0x9fb21c651e98df25ull;
    lanes[lane] ^= lanes[lane] >> 29;
  };
  size_t at = 0;
  for (; at + sizeof(lanes) <= data.size(); at += sizeof(lanes)) {
    uint64_t words[kLanes];
    std::memcpy(words, data.data() + at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) take(i, words[i]);
  }
  for (size_t lane = 0; at < data.size(); at += 8, ++lane) {
    uint64_t word = 0;
    std::memcpy(&word, data.data() + at, std::min<size_t>(8, data.size() - at));
    take(lane, word);
  }
  uint64_t sum = data.size();
  for (const uint64_t lane : lanes) sum = MixBits(sum ^ lane);
  return sum;
}

uint64_t CheckOf(const SegmentEntry& entry) {
  return BytesSum(std::as_bytes(std::span(&entry, 1)).first(sizeof(entry) - 8), 0);
}

Error Failed(const char* what, int error) {
  return {ErrorCode::kInternal, fmt::format("{}: {}", what, std::strerror(error)), "cache_dir"};
}

}  // namespace

TierFingerprint::TierFingerprint(std::string text) : lines(std::move(text)) {
  unsigned char sum[EVP_MAX_MD_SIZE];
  CHECK(EVP_Digest(lines.data(), lines.size(), sum, nullptr, EVP_sha256(), nullptr) == 1,
        "OpenSSL cannot compute SHA-256");
  for (int i = 0; i < 16; ++i) digits += fmt::format("{:02x}", sum[i]);
}

std::string SegmentHeader(const TierFingerprint& fingerprint) {
  std::string header(kMagic);
  header += fingerprint.digits;
  header.resize(kSegmentHeaderBytes - 8, ' ');
  const uint64_t check = BytesSum(std::as_bytes(std::span(header)), 1);
  header.append(reinterpret_cast<const char*>(&check), sizeof(check));
  return header;
}

void Seal(SegmentEntry& entry) { entry.check = CheckOf(entry); }

uint64_t PartSum(const KnownPart& part, std::span<const std::span<const std::byte>> pieces) {
  uint64_t sum = MixBits(part.key.low ^ MixBits(part.key.high + static_cast<uint64_t>(part.kind)));
  for (const std::span<const std::byte> piece : pieces) sum = BytesSum(piece, sum);
  return sum;
}

Result<std::vector<SegmentEntry>> ReadEntries(FileLayer& files, const IndexFile& file,
                                              const TierFingerprint& fingerprint, int64_t& begin) {
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return Failed("the size of an index", errno);
  std::vector<SegmentEntry> entries;
  if (begin == 0) {
    if (info.st_size < kSegmentHeaderBytes) return entries;
    std::string header(kSegmentHeaderBytes, 0);
    RETURN_IF_ERROR(ReadAll(files, file.fd, std::as_writable_bytes(std::span(header)), 0));
    if (header != SegmentHeader(fingerprint)) {
      return Error{ErrorCode::kInvalid, "its header is not of this program and fingerprint"};
    }
    begin = kSegmentHeaderBytes;
  }
  constexpr auto kEntry = static_cast<int64_t>(sizeof(SegmentEntry));
  const int64_t count = (info.st_size - begin) / kEntry;
  if (count <= 0) return entries;
  entries.resize(static_cast<size_t>(count));
  RETURN_IF_ERROR(ReadAll(files, file.fd, std::as_writable_bytes(std::span(entries)), begin));
  begin += count * kEntry;
  std::erase_if(entries, [&](const SegmentEntry& e) {
    return e.check != CheckOf(e) || e.kind > 1 || e.offset < 0 || e.bytes <= 0 ||
           e.bytes > file.pages_bytes || e.offset > file.pages_bytes - e.bytes;
  });
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
    if (::stat(name.index().c_str(), &index) == 0) name.bytes += index.st_size;
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

Status WriteLines(const std::string& directory, const TierFingerprint& fingerprint) {
  const std::string path =
      fmt::format("{}/{}.fingerprint", directory, fingerprint.digits.substr(0, kNameDigits));
  const Result<std::string> present = ReadFile(path, kLinesBytesMax);
  if (present && *present == fingerprint.lines) return {};
  RETURN_IF_ERROR(WriteFile(path, fingerprint.lines));
  ::chmod(path.c_str(), S_IRUSR | S_IWUSR);
  return {};
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
