// Where everything fits, where the host keeps the experts, and what is refused.
#include "model/loading/device_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/loading/test_device_plan.h"

namespace braid {
namespace {

using ::testing::IsEmpty;

TEST(PlanDeviceMemory, DecidesAtTheBordersOfWhatFits) {
  EXPECT_THAT(DevicePlanCases::Failed(), IsEmpty());
}

}  // namespace
}  // namespace braid
