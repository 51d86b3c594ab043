// One conversation's pages as one file, which a machine of the same fingerprint resumes: a header
// with the fingerprint's portable lines, entries as in a segment, and the bytes of the parts. Of
// several ranks, one's pages: each has a folder, and a file, of its own.
// Encrypted parts stay encrypted. The calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "tiers/page_cipher.h"
#include "tiers/segments/segment.h"

namespace braid {

struct ExportRequest {
  std::string directory, to;
  std::string fingerprint;               // first digits of the one that is meant; empty: any
  std::string tenant, salt;              // whose the conversation is
  std::span<const TokenId> tokens;       // its beginning, at least a block
  const PageCipher* cipher = nullptr;    // of encrypted pages
  std::function<void(double)> progress;  // not empty
};
struct Exported {
  std::string fingerprint;  // digits in the names of its segments
  int64_t tokens = 0;       // that can be resumed
  int64_t parts = 0, bytes = 0;
};
// The longest beginning of the tokens that the directory has. kInvalid: it is of several ranks.
Result<Exported> ExportPages(const ExportRequest& request);

// Writes the file's parts as a segment of the directory, for servers there. kInvalid, by name, when
// the file is damaged or the directory has another fingerprint or is another rank's.
Result<Exported> ImportPages(const std::string& from, const std::string& directory,
                             const std::function<void(double)>& progress);

}  // namespace braid
