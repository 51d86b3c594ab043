// Text files of proc and the group folders.
#include "base/system/control_groups.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

namespace braid {
namespace {

// The number after `key` at the start of a line; of a file that is one number, `key` is empty.
std::optional<int64_t> NumberIn(const std::string& path, std::string_view key = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream rest(line.substr(key.size()));
    int64_t value = 0;
    if (rest >> value) return value;
    return std::nullopt;
  }
  return std::nullopt;
}

// f(folder) for the groups of this process that have `controller`, from its own up to the mount.
// In a container the path may be the host's and not exist here; the limit then stands at the mount
// itself.
template <class F>
void ForEachGroup(const std::string& root, const std::string& controller, F f) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() &&
        ("," + controllers + ",").find("," + controller + ",") == std::string::npos) {
      continue;
    }
    // A v1 group is mounted by all its controllers, or by one.
    const std::string top = root + "/sys/fs/cgroup";
    std::set<std::string> mounts = {top + "/" + controllers, top + "/" + controller};
    if (controllers.empty()) mounts = {top};
    for (const std::string& mount : mounts) {
      std::string path = line.substr(second + 1);
      for (; path.starts_with('/'); path.resize(path.rfind('/'))) {
        if (path != "/") f(mount + path);
      }
      f(mount);
    }
  }
}

double QuotaIn(const std::string& folder) {
  double quota = 0, period = 0;
  std::ifstream(folder + "/cpu.max") >> quota >> period;
  if (quota <= 0) {
    quota = static_cast<double>(NumberIn(folder + "/cpu.cfs_quota_us").value_or(0));
    period = static_cast<double>(NumberIn(folder + "/cpu.cfs_period_us").value_or(0));
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The page cache is room: the kernel gives it back, `inactive` pages first.
std::optional<int64_t> RoomIn(const std::string& folder, const char* limit, const char* usage,
                              const char* inactive, const char* active) {
  const std::optional<int64_t> most = NumberIn(folder + "/" + limit);
  const std::optional<int64_t> used = NumberIn(folder + "/" + usage);
  if (!most || !used) return std::nullopt;
  const int64_t cached = NumberIn(folder + "/memory.stat", inactive).value_or(0) +
                         NumberIn(folder + "/memory.stat", active).value_or(0);
  return std::max<int64_t>(0, *most - std::max<int64_t>(0, *used - cached));
}

}  // namespace

double CpuQuota(const std::string& root) {
  double smallest = 0;
  ForEachGroup(root, "cpu", [&](const std::string& folder) {
    const double quota = QuotaIn(folder);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
  });
  return smallest;
}

int64_t AvailableMemory(const std::string& root) {
  int64_t room = std::numeric_limits<int64_t>::max();
  if (const auto kib = NumberIn(root + "/proc/meminfo", "MemAvailable:")) room = *kib * 1024;
  ForEachGroup(root, "memory", [&](const std::string& folder) {
    const auto v2 = RoomIn(folder, "memory.max", "memory.current", "inactive_file", "active_file");
    const auto v1 = RoomIn(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                           "total_inactive_file", "total_active_file");
    room = std::min({room, v2.value_or(room), v1.value_or(room)});
  });
  return room;
}

}  // namespace braid
