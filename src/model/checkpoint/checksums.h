// The SHA-256 sums of a checkpoint's files, compared with those that stand beside them: in
// SHA256SUMS ("HEX  NAME" a line, as sha256sum writes it), or in the records that a download from
// Hugging Face leaves in .cache/huggingface/download/NAME.metadata, whose second line is the sum of
// a large file. The calling thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace braid {

struct ChecksumReport {
  std::vector<std::string> checked;  // files that have the sum that they should have
  std::vector<std::string> unknown;  // files of weights whose sum nobody states
};

// `progress` gets each file's name before it is read; may be empty. Files that differ, or are named
// and not there, are listed together in one Error.
Result<ChecksumReport> VerifyChecksums(const std::string& directory,
                                       const std::function<void(const std::string&)>& progress);

}  // namespace braid
