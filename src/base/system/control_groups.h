// What the kernel's control groups (v1 and v2, at any level) grant this process. A group's limit
// binds its descendants, so the smallest on the way up counts. Files that cannot be read limit
// nothing. `root` is where proc and sys are mounted below; tests give a folder of their own.
#pragma once

#include <cstdint>
#include <string>

namespace braid {

// CPU seconds per second; 0: unlimited.
double CpuQuota(const std::string& root = "");

// Bytes that this process may still take: the machine's MemAvailable, or less where a group leaves
// less.
int64_t AvailableMemory(const std::string& root = "");

}  // namespace braid
