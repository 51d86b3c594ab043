// A segment as a disk tier knows it, and the descriptors of its files: few stay open, since the
// server's connections need descriptors too. Under the tier's mutex.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/page_key.h"

namespace braid {

struct TierSegment {
  std::string stem;
  int pages = -1, index = -1;        // -1: not open; pages that are written to are locked
  int64_t bytes = 0;                 // of NAME.pages that are given away or there
  int64_t index_bytes = 0;           // of NAME.index that were read or written
  int64_t used_us = 0, told_us = 0;  // the last use, and the last that others can see
  int32_t users = 0;                 // threads that read or write it
  bool own = false;                  // this tier appends to it, or did
  bool warned = false;               // the log says that its index cannot be read
  bool gone = false;                 // its files are removed; the last user closes it
  std::vector<KnownPart> parts;
};
using TierSegments = std::map<int32_t, TierSegment>;

void Close(TierSegment& segment);

// The descriptor of its pages. Where many are open another one is closed, that nobody uses or
// writes to. kNotFound: another server has removed them. kUnavailable: no descriptor is left.
Result<int> OpenPages(TierSegments& segments, int32_t id);

// It is used. Other servers, and this one when it starts again, see it by the time of the file.
void TellUse(TierSegment& segment);

}  // namespace braid
