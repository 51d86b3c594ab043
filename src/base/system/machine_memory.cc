// Text files of the kernel; what cannot be read limits nothing.
#include "base/system/machine_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace braid {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Files of /proc and /sys have no size: read to the end.
std::string Slurp(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : std::string();
}

std::optional<int64_t> ParseNumber(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The number after `key` at the start of a line.
std::optional<int64_t> FieldOf(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return ParseNumber(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive;  // in memory.stat: page cache that the kernel gives back first
};

// What the group in `directory` and the groups above it, up to `top`, still allow.
int64_t RoomInGroups(std::string directory, const std::string& top, const GroupFiles& files) {
  int64_t room = kUnlimited;
  while (directory.size() >= top.size()) {
    const std::optional<int64_t> limit = ParseNumber(Slurp(directory + "/" + files.limit));
    const std::optional<int64_t> usage = ParseNumber(Slurp(directory + "/" + files.usage));
    if (limit && usage) {
      const int64_t cached = FieldOf(Slurp(directory + "/memory.stat"), files.inactive).value_or(0);
      room = std::min(room, std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cached)));
    }
    directory.resize(directory.rfind('/'));
  }
  return room;
}

}  // namespace

int64_t AvailableMemory(const std::string& root) {
  int64_t room = kUnlimited;
  if (const auto kib = FieldOf(Slurp(root + "/proc/meminfo"), "MemAvailable:")) room = *kib * 1024;
  std::istringstream groups(Slurp(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" (v2) or "7:memory,cpu:/path" (v1)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      const std::string top = root + "/sys/fs/cgroup";
      room = std::min(
          room, RoomInGroups(top + path, top, {"memory.max", "memory.current", "inactive_file"}));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      const std::string top = root + "/sys/fs/cgroup/memory";
      room = std::min(room, RoomInGroups(top + path, top,
                                         {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                          "total_inactive_file"}));
    }
  }
  return room;
}

}  // namespace braid
