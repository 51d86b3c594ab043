// Cores and nodes from sysfs, the quota from the control groups.
#include "base/system/topology.h"

#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/math.h"
#include "base/system/control_groups.h"

namespace braid {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Folders of nodes, by number.
std::map<int, std::string> NodeFolders(const std::string& root) {
  std::map<int, std::string> folders;
  std::error_code failed;
  const std::string folder = root + "/sys/devices/system/node";
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("node", 0) != 0 || name.size() < 5 || !std::isdigit(name[4])) continue;
    folders[std::atoi(name.c_str() + 4)] = entry.path().string();
  }
  return folders;
}

std::map<int, int> NodeOfCpus(const std::string& root) {
  std::map<int, int> nodes;
  for (const auto& [node, folder] : NodeFolders(root)) {
    for (int cpu : ParseCpuList(FirstLine(folder + "/cpulist"))) nodes[cpu] = node;
  }
  return nodes;
}

// What follows `name` in the first line of a file that has it; empty: no line has it.
std::string Behind(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(name);
    if (at != std::string::npos) return line.substr(at + name.size());
  }
  return {};
}

}  // namespace

std::vector<int> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream in(text);
  int first = 0;
  while (in >> first) {
    int last = first;
    if (in.peek() == '-') {
      in.get();
      if (!(in >> last)) return cpus;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (in.peek() != ',') return cpus;
    in.get();
  }
  return cpus;
}

std::vector<int> AffinityMask() {
  std::vector<int> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

Topology ReadTopology(const std::vector<int>& mask, const std::string& root) {
  Topology topology;
  topology.logical_cpus = static_cast<int>(mask.size());
  const std::map<int, int> nodes = NodeOfCpus(root);
  const std::set<int> allowed(mask.begin(), mask.end());
  std::set<int> taken, nodes_seen;
  for (int cpu : allowed) {
    if (taken.count(cpu)) continue;
    Core core;
    const auto node = nodes.find(cpu);
    core.node = node == nodes.end() ? 0 : node->second;
    const std::string siblings = FirstLine(
        fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu));
    for (int sibling : ParseCpuList(siblings)) {
      if (allowed.count(sibling)) core.cpus.push_back(sibling);
    }
    if (core.cpus.empty()) core.cpus = {cpu};
    taken.insert(core.cpus.begin(), core.cpus.end());
    nodes_seen.insert(core.node);
    topology.cores.push_back(std::move(core));
  }
  std::stable_sort(topology.cores.begin(), topology.cores.end(),
                   [](const Core& a, const Core& b) { return a.node < b.node; });
  topology.nodes = std::max(1, static_cast<int>(nodes_seen.size()));
  topology.quota_cpus = CpuQuota(root);
  return topology;
}

int Topology::DefaultThreads() const {
  const int all = std::max(1, static_cast<int>(cores.size()));
  if (quota_cpus <= 0) return all;
  return std::clamp(static_cast<int>(std::floor(quota_cpus)), 1, all);
}

ThreadPlaces Topology::PlacesOf(int threads) const {
  ThreadPlaces places;
  if (threads != static_cast<int>(cores.size())) return places;
  for (const Core& core : cores) {
    places.cpus.push_back(core.cpus);
    places.nodes.push_back(core.node);
  }
  return places;
}

std::vector<NodeMemory> MemoryNodes(const std::string& root) {
  std::vector<NodeMemory> nodes;
  const std::string list = Behind(root + "/proc/self/status", "Mems_allowed_list:");
  const std::vector<int> allowed = ParseCpuList(list);
  for (const auto& [node, folder] : NodeFolders(root)) {
    const auto kib = [&](const char* name) {
      return std::atoll(Behind(folder + "/meminfo", name).c_str());
    };
    const bool denied = !allowed.empty() && std::ranges::find(allowed, node) == allowed.end();
    if (denied || kib(" MemTotal:") == 0) continue;
    nodes.push_back({node, (kib(" MemFree:") + kib(" Inactive(file):")) * 1024});
  }
  return nodes;
}

void PreferNode(std::byte* begin, int64_t bytes, int node) {
  constexpr int64_t kPage = 4096;
  constexpr int kNodesMost = 1024, kBits = 64;
  const auto address = reinterpret_cast<int64_t>(begin);
  const int64_t first = RoundUp(address, kPage), end = (address + bytes) / kPage * kPage;
  if (first >= end || node < 0 || node >= kNodesMost) return;
  uint64_t nodes[kNodesMost / kBits] = {};
  nodes[node / kBits] = uint64_t{1} << (node % kBits);
  ::syscall(SYS_mbind, first, end - first, MPOL_PREFERRED, nodes, kNodesMost, 0);
}

}  // namespace braid
