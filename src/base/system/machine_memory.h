// How much memory this process may still take: the machine's, and what its control groups leave of
// it.
#pragma once

#include <cstdint>
#include <string>

namespace braid {

// MemAvailable, or less where a control group (v1 or v2, any level) allows less. `root` is where
// the file systems proc and sys are mounted below; tests give a directory of their own.
int64_t AvailableMemory(const std::string& root = "");

}  // namespace braid
