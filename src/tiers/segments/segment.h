// The files of a disk tier. A segment is a pair: NAME.pages has the bytes of parts, one after the
// other; NAME.index has a header and an entry for each part, written after the part itself. Nothing
// is written twice and nothing is changed, so a crash at any byte leaves at most a part without an
// entry, or half an entry, which its checksum tells. NAME begins with the fingerprint: files of
// another one are not opened. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/page_key.h"
#include "tiers/file_layer.h"

namespace braid {

// What a page's bytes depend on besides the tokens: lines of "name: value", and 32 hex digits of
// their SHA-256. Lines behind an empty one hold in one place only: times of files, a rank's number.
struct TierFingerprint {
  TierFingerprint() = default;
  explicit TierFingerprint(const std::string& common_lines, const std::string& local_lines = {});
  static TierFingerprint Of(const std::string& lines);
  // Of one of several ranks that divide the heads.
  TierFingerprint OfRank(int32_t rank, int32_t ranks) const;
  std::string lines;
  std::string digits;    // of all
  std::string portable;  // digits of PortableLines
};
// Those that decide about a page's bytes wherever it lies: those that hold everywhere, and behind
// an empty line the rank, where there are several.
std::string PortableLines(std::string_view lines);
// Of PortableLines; empty: one rank has all heads.
std::string_view RankOf(std::string_view lines);

// Whose pages a segment has: the fingerprint's digits, and the id of the key that they are
// encrypted with (16 hex digits; empty: they are not).
struct SegmentIdentity {
  std::string digits, key_id;
  bool operator==(const SegmentIdentity&) const = default;
};

// Where a part lies. Little-endian, as all of it.
struct PartPlace {
  int64_t offset = 0, bytes = 0;  // in NAME.pages
  uint64_t sum = 0;               // of these bytes: PartSum
  uint64_t nonce_high = 0;        // of an encrypted one
  uint32_t nonce_low = 0;
  uint32_t kind = 0;  // a GroupKind
};
struct SegmentEntry {
  PageKey key;  // of an encrypted segment: hidden (PageCipher)
  PartPlace place;
  uint64_t check = 0;  // of the fields before
};
static_assert(sizeof(SegmentEntry) == 64);

inline constexpr int64_t kSegmentHeaderBytes = 64;

std::string SegmentHeader(const SegmentIdentity& identity);
// None: not the header of a segment that this program reads.
std::optional<SegmentIdentity> ParseHeader(std::string_view header);
// The header of a segment that another version of this program has made.
bool OfOtherVersion(std::string_view header);
void Seal(SegmentEntry& entry);  // sets `check`

// A sum of bytes, however they are cut.
class PartSum {
 public:
  PartSum(const PageKey& key, uint32_t kind);
  void Add(std::span<const std::byte> data);
  uint64_t End();

 private:
  static constexpr size_t kLanes = 8;
  void Take(const std::byte* data);
  uint64_t lanes_[kLanes];
  std::byte rest_[kLanes * 8];
  uint64_t size_ = 0;
};

// The entries of NAME.index from byte `begin` (0: behind the header) on, without those that are
// damaged or name bytes past the end of NAME.pages; reads the header too. Sets `begin` to the end
// of the last good one: what is bad at the end may still be written.
// kUnavailable: the pages are encrypted with another key, or one has them and the other has not.
struct IndexFile {
  int fd = -1;
  std::string pages;  // path of NAME.pages
};
Result<std::vector<SegmentEntry>> ReadEntries(FileLayer& files, const IndexFile& file,
                                              const SegmentIdentity& identity, int64_t& begin);

// A segment that is in a directory.
struct SegmentName {
  std::string stem;                 // the path without ".pages"
  std::string name_digits() const;  // of the fingerprint
  bool same = false;                // of this fingerprint
  int64_t bytes = 0;                // of both files
  int64_t index_bytes = 0;          // of them
  int64_t changed_us = 0;           // of NAME.pages: its last write, or use
  std::string pages() const { return stem + ".pages"; }
  std::string index() const { return stem + ".index"; }
};
// By name. A fingerprint without digits is that of no segment.
Result<std::vector<SegmentName>> ListSegments(const std::string& directory,
                                              const TierFingerprint& fingerprint);
// Writes the fingerprint's lines to a file beside its segments, for `braid cache`, unless it is
// there; its time is now. The descriptor tells others, until it is closed, that a server uses them.
Result<int> UseLines(const std::string& directory, const TierFingerprint& fingerprint);
// Of the fingerprint whose digits a file's name begins with; empty: nobody knows.
std::string ReadLines(const std::string& directory, std::string_view name_digits);
struct LinesFile {
  std::string name_digits;
  bool used = false;       // by a server, now
  int64_t changed_us = 0;  // when a server began to use it, or a segment of it
};
// Those that a server uses come first, then those that were used last.
Result<std::vector<LinesFile>> ListLines(const std::string& directory);
// Unless a server uses them.
void RemoveUnusedLines(const std::string& directory, const std::string& name_digits);
// Removes both files; the caller has locked NAME.pages. The error names the file that is left.
Status RemoveFiles(const std::string& stem);
// Both files. kUnavailable: somebody writes to them.
Status RemoveUnlessWritten(const std::string& stem);
std::string NewSegmentStem(const std::string& directory, const TierFingerprint& fingerprint);
// Both files, with the header in the index. The lock of NAME.pages holds until that is closed.
struct SegmentFiles {
  int pages = -1, index = -1;
};
Result<SegmentFiles> CreateSegment(FileLayer& files, const std::string& stem,
                                   const SegmentIdentity& identity);

// All or an error; names what was being done.
Status ReadAll(FileLayer& files, int fd, std::span<std::byte> out, int64_t offset);
Status WriteAll(FileLayer& files, int fd, std::span<const std::byte> data, int64_t offset);

}  // namespace braid
