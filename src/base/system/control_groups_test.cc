// Limits of machines that are written down as folders.
#include "base/system/control_groups.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/system/test_root.h"

namespace braid {
namespace {

TEST(CpuQuota, IsTheSmallestOfAnyVersion2GroupOnTheWayUp) {
  const FakeRoot root("v2");
  EXPECT_EQ(CpuQuota(root.path()), 0);
  root.Put("proc/self/cgroup", "0::/pod/box");
  EXPECT_EQ(CpuQuota(root.path()), 0);
  root.Put("sys/fs/cgroup/pod/box/cpu.max", "max 100000");
  EXPECT_EQ(CpuQuota(root.path()), 0);
  root.Put("sys/fs/cgroup/pod/cpu.max", "250000 100000");
  EXPECT_DOUBLE_EQ(CpuQuota(root.path()), 2.5);
  root.Put("sys/fs/cgroup/pod/box/cpu.max", "50000 100000");
  EXPECT_DOUBLE_EQ(CpuQuota(root.path()), 0.5);
  root.Put("sys/fs/cgroup/cpu.max", "20000 100000");
  EXPECT_DOUBLE_EQ(CpuQuota(root.path()), 0.2);
}

TEST(CpuQuota, OfVersion1CountsAlsoWhereTheContainerSeesOnlyTheMount) {
  const FakeRoot root("v1");
  root.Put("proc/self/cgroup", "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n0::/");
  root.Put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000");
  root.Put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(CpuQuota(root.path()), 4);
  root.Put("sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "150000");
  root.Put("sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "50000");
  EXPECT_DOUBLE_EQ(CpuQuota(root.path()), 3);
  root.Put("sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "-1");
  root.Put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(CpuQuota(root.path()), 0);
}

TEST(CpuQuota, LooksOnlyAtGroupsWithTheCpuController) {
  const FakeRoot root("other");
  root.Put("proc/self/cgroup", "5:cpuset:/a\nnonsense\n4:pids:relative");
  root.Put("sys/fs/cgroup/cpuset/a/cpu.max", "1 100000");
  root.Put("sys/fs/cgroup/cpu/a/cpu.max", "1 100000");
  EXPECT_EQ(CpuQuota(root.path()), 0);
}

TEST(AvailableMemory, IsUnlimitedWhereNothingCanBeRead) {
  const FakeRoot root("nothing");
  EXPECT_EQ(AvailableMemory(root.path()), std::numeric_limits<int64_t>::max());
}

TEST(AvailableMemory, IsWhatTheTightestVersion2GroupLeaves) {
  const FakeRoot root("memory2");
  root.Put("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8000000 kB");
  EXPECT_EQ(AvailableMemory(root.path()), int64_t{8000000} * 1024);
  root.Put("proc/self/cgroup", "0::/outer/inner");
  root.Put("sys/fs/cgroup/outer/inner/memory.max", "max");
  root.Put("sys/fs/cgroup/outer/inner/memory.current", "5000");
  EXPECT_EQ(AvailableMemory(root.path()), int64_t{8000000} * 1024);
  // 700,000 used, of which 300,000 are page cache.
  root.Put("sys/fs/cgroup/outer/memory.max", "1000000");
  root.Put("sys/fs/cgroup/outer/memory.current", "700000");
  root.Put("sys/fs/cgroup/outer/memory.stat",
           "anon 400000\ninactive_file 200000\nactive_file 100000");
  EXPECT_EQ(AvailableMemory(root.path()), 600000);
  // More page cache than use leaves all of the limit.
  root.Put("sys/fs/cgroup/outer/memory.stat", "inactive_file 900000");
  EXPECT_EQ(AvailableMemory(root.path()), 1000000);
}

TEST(AvailableMemory, OfAVersion1GroupIsNeverNegative) {
  const FakeRoot root("memory1");
  root.Put("proc/self/cgroup", "7:cpu,memory:/job\n3:pids:/x");
  root.Put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000");
  root.Put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "8000");
  EXPECT_EQ(AvailableMemory(root.path()), 1000);
  root.Put("sys/fs/cgroup/memory/job/memory.stat",
           "inactive_file 5\ntotal_inactive_file 300\ntotal_active_file 200");
  EXPECT_EQ(AvailableMemory(root.path()), 1500);
  root.Put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "20000");
  EXPECT_EQ(AvailableMemory(root.path()), 0);
}

}  // namespace
}  // namespace braid
