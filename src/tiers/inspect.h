// What a directory of pages holds, for the commands `braid cache`: read beside servers that use it,
// without a fingerprint and without a key. The calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tiers/segments/segment.h"

namespace braid {

struct SegmentFacts {
  SegmentName name;
  std::optional<SegmentIdentity> identity;  // none: no header that this program knows
  bool written_to = false;                  // by a server, now
  std::vector<SegmentEntry> entries;
  int64_t keys = 0, states = 0;  // parts of either kind
  std::string fault = {};        // the file that is damaged or cannot be read, and why; empty: none
};

// Of all segments in the directory and in those of ranks below it, by name.
Result<std::vector<SegmentFacts>> InspectDirectory(FileLayer& files, const std::string& directory);

// Reads all parts of a segment and compares their sums; `progress` gets each one's bytes. Gives the
// number of parts that are not what was written or cannot be read. kNotFound: the segment has been
// removed meanwhile.
Result<int64_t> VerifySegment(FileLayer& files, const SegmentFacts& segment,
                              const std::function<void(int64_t)>& progress);

// Removes a segment. Servers that read it find out, and compute. kUnavailable: one writes to it.
Status RemoveSegment(const SegmentFacts& segment);
// Removes the lines of fingerprints that begin with these digits, that no segment has and no server
// uses, in the directory and in those of ranks below it.
Status RemoveLines(const std::string& directory, const std::string& digits);

}  // namespace braid
