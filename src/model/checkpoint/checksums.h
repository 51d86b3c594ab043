// Compares the SHA-256 sums of a checkpoint's files with those stored beside them: in
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
  std::vector<std::string> checked;  // files that match their sums
  std::vector<std::string> unknown;  // weight files without a stored sum
};

// Of the files of a directory, or of a GGUF file with its other parts. `progress` gets each file's
// name before it is read; may be empty. One Error lists all files that differ or are missing.
Result<ChecksumReport> VerifyChecksums(const std::string& model,
                                       const std::function<void(const std::string&)>& progress);

}  // namespace braid
