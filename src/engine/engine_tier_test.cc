// What is said of --cache-host before anything is loaded.
#include "engine/engine_tier.h"

#include <gmock/gmock.h>

#include <cstdint>

#include "base/system/test_root.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() : root_("host_memory") {
    root_.Put("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8388608 kB");
    root_.Put("sys/devices/system/node/node0/meminfo",
              "Node 0 MemTotal: 6000000 kB\nNode 0 MemFree: 4194304 kB");
    root_.Put("sys/devices/system/node/node3/meminfo",
              "Node 3 MemTotal: 6000000 kB\nNode 3 MemFree: 4194304 kB");
  }
  Status Check(int32_t ranks_here = 1) {
    return CheckHostMemory(options_, ranks_here, root_.path());
  }

  FakeRoot root_;
  EngineOptions options_;
};

TEST_F(HostMemoryTest, MoreThanIsFreeIsRefusedWithBothNumbers) {
  EXPECT_TRUE(Check().ok());
  options_.cache_host_bytes = int64_t{8} << 30;
  EXPECT_TRUE(Check().ok());
  options_.cache_host_bytes = int64_t{12} << 30;
  const Status refused = Check();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("12.0 GiB"));
  EXPECT_THAT(refused.error().message, HasSubstr("8.00 GiB"));
  // Half of the ranks are on another machine.
  options_.mesh.dp = 4;
  EXPECT_TRUE(Check(2).ok());
  EXPECT_FALSE(Check(4).ok());
  EXPECT_EQ(HostBytesHere(options_, 2), int64_t{6} << 30);
  EXPECT_EQ(HostBytesHere(options_, 4), int64_t{12} << 30);
}

TEST_F(HostMemoryTest, ANodeThatIsNotThereIsRefused) {
  options_.cache_host_bytes = int64_t{6} << 30;  // on a node with less: said, not refused
  for (const int32_t node : {0, 3}) {
    options_.cache_host_node = node;
    EXPECT_TRUE(Check().ok()) << node;
  }
  options_.cache_host_node = 1;
  const Status refused = Check();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("node 1"));
  EXPECT_THAT(refused.error().message, HasSubstr("0, 3"));
}

TEST_F(HostMemoryTest, ANodeWithoutASizeIsRefused) {
  options_.cache_host_node = 0;
  const Status refused = Check();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--cache-host"));
}

}  // namespace
}  // namespace braid
