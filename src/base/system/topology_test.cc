// Cores, nodes and quotas of machines that are written down as folders.
#include "base/system/topology.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include "base/system/test_page_policy.h"
#include "base/system/test_root.h"

namespace braid {
namespace {

void PutSiblings(const FakeRoot& root, int cpu, const std::string& list) {
  root.Put(fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu), list);
}

TEST(Topology, TheAffinityMaskIsTheThreads) {
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  const std::vector<int> cpus = AffinityMask();
  EXPECT_EQ(static_cast<int>(cpus.size()), CPU_COUNT(&mask));
  for (const int cpu : cpus) EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(cpu), &mask)) << cpu;
}

TEST(Topology, CpuListsAreNumbersAndRanges) {
  EXPECT_EQ(ParseCpuList("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(ParseCpuList("5"), std::vector<int>{5});
  EXPECT_TRUE(ParseCpuList("").empty());
}

TEST(Topology, HyperthreadsAreOneCoreAndCoresAreOrderedByNode) {
  const FakeRoot root("nodes");
  // Two nodes of two cores; CPUs alternate between the nodes, siblings are 4 apart.
  for (int cpu = 0; cpu < 8; ++cpu) {
    PutSiblings(root, cpu, fmt::format("{},{}", cpu % 4, cpu % 4 + 4));
  }
  root.Put("sys/devices/system/node/node0/cpulist", "0,2,4,6");
  root.Put("sys/devices/system/node/node1/cpulist", "1,3,5,7");
  const Topology all = ReadTopology({0, 1, 2, 3, 4, 5, 6, 7}, root.path());
  ASSERT_EQ(all.cores.size(), 4u);
  EXPECT_EQ(all.nodes, 2);
  EXPECT_EQ(all.cores[0].cpus, (std::vector<int>{0, 4}));
  EXPECT_EQ(all.cores[1].cpus, (std::vector<int>{2, 6}));
  EXPECT_EQ(all.cores[2].cpus, (std::vector<int>{1, 5}));
  EXPECT_EQ(all.cores[2].node, 1);
  EXPECT_EQ(all.DefaultThreads(), 4);
  EXPECT_EQ(all.PlacesOf(4).nodes, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_TRUE(all.PlacesOf(3).nodes.empty());

  // taskset to one node and one more hyperthread: only what the mask has counts.
  const Topology some = ReadTopology({0, 2, 5}, root.path());
  EXPECT_EQ(some.logical_cpus, 3);
  ASSERT_EQ(some.cores.size(), 3u);
  EXPECT_EQ(some.cores[2].cpus, std::vector<int>{5});
  const Topology one = ReadTopology({0, 4}, root.path());
  EXPECT_EQ(one.cores.size(), 1u);
  EXPECT_EQ(one.nodes, 1);
}

TEST(Topology, MemoryIsOfNodesWithAndWithoutCores) {
  const FakeRoot root("memory_nodes");
  EXPECT_TRUE(MemoryNodes(root.path()).empty());
  const auto put = [&](int node, int64_t total, int64_t free, int64_t inactive) {
    root.Put(fmt::format("sys/devices/system/node/node{}/meminfo", node),
             fmt::format("Node {0} MemTotal:       {1} kB\nNode {0} MemFree:        {2} kB\n"
                         "Node {0} MemUsed:        1 kB\nNode {0} Inactive(anon): 7 kB\n"
                         "Node {0} Inactive(file): {3} kB",
                         node, total, free, inactive));
  };
  put(0, 1000, 500, 0);
  put(2, 0, 0, 0);  // cores alone
  put(10, 4000, 3000, 200);
  root.Put("sys/devices/system/node/node0/cpulist", "0-3");
  root.Put("sys/devices/system/node/possible", "0-10");
  std::vector<NodeMemory> nodes = MemoryNodes(root.path());
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].node, 0);
  EXPECT_EQ(nodes[0].free_bytes, 500 * 1024);
  EXPECT_EQ(nodes[1].node, 10);
  EXPECT_EQ(nodes[1].free_bytes, 3200 * 1024);
  root.Put("proc/self/status", "Name:\tbraid\nMems_allowed:\t00000001\nMems_allowed_list:\t0");
  nodes = MemoryNodes(root.path());
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].node, 0);
}

TEST(Topology, PagesComeFromTheNodeThatIsPreferred) {
  constexpr size_t kBytes = 1 << 20;
  auto* pages = static_cast<std::byte*>(
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  PreferNode(pages + 100, kBytes / 2, 0);            // whole pages inside only
  PreferNode(pages + kBytes / 2, kBytes / 2, 1000);  // no such node: nothing happens
  if (PagePolicyAt(pages + 8192) < 0) GTEST_SKIP() << "the kernel tells no policies";
  EXPECT_EQ(PagePolicyAt(pages), MPOL_DEFAULT);
  EXPECT_EQ(PagePolicyAt(pages + 4096), MPOL_PREFERRED);
  EXPECT_EQ(PagePolicyAt(pages + kBytes / 2 - 4096), MPOL_PREFERRED);
  EXPECT_EQ(PagePolicyAt(pages + kBytes / 2 + 4096), MPOL_DEFAULT);
  pages[kBytes - 1] = pages[4096] = std::byte{1};
  ::munmap(pages, kBytes);
}

TEST(Topology, ThreadsAreBoundOnlyWhenTheyTakeEveryCoreOfTheMask) {
  const FakeRoot root("binding");
  const Topology topology = ReadTopology({2, 3}, root.path());
  EXPECT_EQ(topology.PlacesOf(2).cpus, (std::vector<std::vector<int>>{{2}, {3}}));
  EXPECT_TRUE(topology.PlacesOf(1).cpus.empty());
  EXPECT_TRUE(topology.PlacesOf(3).cpus.empty());
}

TEST(Topology, AQuotaOfTwoAndAHalfCpusKeepsTwoThreadsRunning) {
  const FakeRoot root("quota");
  root.Put("proc/self/cgroup", "0::/");
  const std::vector<int> mask = {0, 1, 2, 3};
  EXPECT_EQ(ReadTopology(mask, root.path()).DefaultThreads(), 4);
  root.Put("sys/fs/cgroup/cpu.max", "250000 100000");
  EXPECT_DOUBLE_EQ(ReadTopology(mask, root.path()).quota_cpus, 2.5);
  EXPECT_EQ(ReadTopology(mask, root.path()).DefaultThreads(), 2);
  root.Put("sys/fs/cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(ReadTopology(mask, root.path()).DefaultThreads(), 1);
}

TEST(Topology, AQuotaAboveTheCoresChangesNothing) {
  const FakeRoot root("large");
  root.Put("proc/self/cgroup", "0::/");
  root.Put("sys/fs/cgroup/cpu.max", "1600000 100000");
  EXPECT_EQ(ReadTopology({0, 1}, root.path()).DefaultThreads(), 2);
}

TEST(Topology, ThisMachineHasTheCoresOfItsMask) {
  const std::vector<int> mask = AffinityMask();
  ASSERT_FALSE(mask.empty());
  const Topology topology = ReadTopology(mask);
  EXPECT_EQ(topology.logical_cpus, static_cast<int>(mask.size()));
  size_t cpus = 0;
  for (const Core& core : topology.cores) cpus += core.cpus.size();
  EXPECT_EQ(cpus, mask.size());
}

}  // namespace
}  // namespace braid
