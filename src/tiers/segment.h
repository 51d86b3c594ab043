// The files of a disk tier. A segment is a pair: NAME.pages has the bytes of parts, one after the
// other; NAME.index has a header and an entry for each part, written after the part itself. Nothing
// is written twice and nothing is changed, so a crash at any byte leaves at most a part without an
// entry, or half an entry, which its checksum tells. NAME begins with the fingerprint: files of
// another one are not opened. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/page_key.h"
#include "tiers/file_layer.h"

namespace braid {

// What a page's bytes depend on besides the tokens: lines of "name: value", and 32 hex digits of
// their SHA-256.
struct TierFingerprint {
  TierFingerprint() = default;
  explicit TierFingerprint(std::string lines);
  std::string lines, digits;
};

// Where a part lies. Little-endian, as all of it.
struct SegmentEntry {
  PageKey key;
  int64_t offset = 0, bytes = 0;
  uint64_t sum = 0;   // of the part's bytes, key and kind: PartSum
  uint32_t kind = 0;  // a GroupKind
  uint32_t zero = 0;
  uint64_t reserved = 0;
  uint64_t check = 0;  // of the fields before
};
static_assert(sizeof(SegmentEntry) == 64);

inline constexpr int64_t kSegmentHeaderBytes = 64;

std::string SegmentHeader(const TierFingerprint& fingerprint);
void Seal(SegmentEntry& entry);  // sets `check`

// The sum of a part whose bytes are these pieces, block by block.
uint64_t PartSum(const KnownPart& part, std::span<const std::span<const std::byte>> pieces);

// The entries of NAME.index from byte `begin` (0: the header) on, without those that are damaged or
// name bytes past the end of NAME.pages. Sets `begin` to the end of the last whole entry.
struct IndexFile {
  int fd = -1;
  int64_t pages_bytes = 0;  // size of NAME.pages
};
Result<std::vector<SegmentEntry>> ReadEntries(FileLayer& files, const IndexFile& file,
                                              const TierFingerprint& fingerprint, int64_t& begin);

// A segment that is in a directory.
struct SegmentName {
  std::string stem;   // the path without ".pages"
  bool same = false;  // of this fingerprint
  int64_t bytes = 0;  // of both files
  int64_t changed_us = 0;
  std::string pages() const { return stem + ".pages"; }
  std::string index() const { return stem + ".index"; }
};
// By name. A fingerprint without digits is that of no segment.
Result<std::vector<SegmentName>> ListSegments(const std::string& directory,
                                              const TierFingerprint& fingerprint);
// Writes the fingerprint's lines to a file beside its segments, for people, unless it is there.
Status WriteLines(const std::string& directory, const TierFingerprint& fingerprint);
std::string NewSegmentStem(const std::string& directory, const TierFingerprint& fingerprint);

// All or an error; names what was being done.
Status ReadAll(FileLayer& files, int fd, std::span<std::byte> out, int64_t offset);
Status WriteAll(FileLayer& files, int fd, std::span<const std::byte> data, int64_t offset);

}  // namespace braid
