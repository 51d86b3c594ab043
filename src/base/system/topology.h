// Which CPUs this process may compute on: the cores of its affinity mask, the NUMA nodes they
// belong to, and the CPU time that a control group grants. Read once at start; files come below a
// root folder, so that tests describe machines of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace braid {

struct Core {
  std::vector<int> cpus;  // its logical CPUs within the mask, ascending
  int node = 0;
};

// Where the members of a team of threads run.
struct ThreadPlaces {
  std::vector<std::vector<int>> cpus;  // of each member; empty: the kernel places them
  std::vector<int> nodes;              // the NUMA node of each member; empty: one for all
};

struct Topology {
  std::vector<Core> cores;  // of the mask, by node, then by first CPU: neighbours share a node
  int logical_cpus = 0;     // of the mask
  int nodes = 1;            // that have cores of the mask
  double quota_cpus = 0;    // CPU seconds per second that the control groups grant; 0: unlimited

  // One thread per core, and no more than the quota keeps running. A quota of 2.5 gives 2: a third
  // thread would be stopped half of the time, and all others would wait for it.
  int DefaultThreads() const;
  // Of `threads` compute threads; empty when they should not be bound. They are bound when they
  // take every core of the mask; with fewer, two processes would bind themselves to the same cores,
  // and the kernel places them better (taskset says which cores to take).
  ThreadPlaces PlacesOf(int threads) const;
};

// The calling thread's affinity mask, which control groups' cpusets have already narrowed.
std::vector<int> AffinityMask();

// `root` holds sys/ and proc/self/cgroup. Missing files mean one node, no siblings, no quota.
Topology ReadTopology(const std::vector<int>& mask, const std::string& root = "/");

struct NodeMemory {
  int node = 0;
  int64_t free_bytes = 0;  // what is free, or caches files that nobody has used for a while
};

// The NUMA nodes of whose memory this process may have some, ascending, whether or not they have
// cores. Empty where the kernel does not tell.
std::vector<NodeMemory> MemoryNodes(const std::string& root = "/");

// Asks the kernel to take pages of [begin, begin + bytes) that are not mapped yet from a NUMA node.
// If the kernel refuses, the first thread that touches a page decides, as usual.
void PreferNode(std::byte* begin, int64_t bytes, int node);

// "0-3,8" as 0 1 2 3 8; stops at the first character that fits no number.
std::vector<int> ParseCpuList(const std::string& text);

}  // namespace braid
