// For tests: segments that no server has written.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tiers/part_file.h"
#include "tiers/segments/segment.h"

namespace braid {

// A segment with these parts, each of 100 bytes that are its key's low ones, or a state's 70; and
// the lines of its fingerprint. Its path without an extension.
inline std::string WriteSegmentOf(const std::string& directory, const TierFingerprint& fingerprint,
                                  const std::vector<KnownPart>& parts,
                                  const PageCipher* cipher = nullptr) {
  FileLayer files;
  std::filesystem::create_directories(directory);
  ::close(*UseLines(directory, fingerprint));
  const std::string stem = NewSegmentStem(directory, fingerprint);
  const SegmentFiles made =
      *CreateSegment(files, stem, {fingerprint.digits, cipher != nullptr ? cipher->id() : ""});
  const PartFile part_file(files, fingerprint.portable, cipher);
  int64_t index_bytes = kSegmentHeaderBytes;
  PartPlace place;
  for (const KnownPart& part : parts) {
    std::vector<std::byte> bytes(part.kind == GroupKind::kState ? 70 : 100,
                                 static_cast<std::byte>(part.key.low));
    EXPECT_TRUE(part_file.Write(made.pages, part, {std::span(bytes)}, place));
    const SegmentEntry entry = part_file.EntryOf(part, place);
    EXPECT_TRUE(WriteAll(files, made.index, std::as_bytes(std::span(&entry, 1)), index_bytes));
    index_bytes += int64_t{sizeof(entry)};
    place = {.offset = place.offset + place.bytes};
  }
  ::close(made.pages);
  ::close(made.index);
  return stem;
}

}  // namespace braid
