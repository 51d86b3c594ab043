// What moved_there.h has, without mistakes.
#include "tests/equality/moved_there.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(VulkanPages, DraftHeadsGoOnBehindRestoredPages) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  EXPECT_TRUE(HeadsGoOnBehindRestoredPages());
}

TEST(VulkanPages, LeaveWithWhatWasRecorded) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  EXPECT_TRUE(PagesLeaveWithWhatWasRecorded());
}

TEST(VulkanPages, MovesEndBeforeALoss) {
  if (ArithmeticsOnDevice().empty()) GTEST_SKIP() << "no Vulkan device can be used";
  EXPECT_TRUE(MovesEndBeforeALoss());
}

}  // namespace
}  // namespace braid
