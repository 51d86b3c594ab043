// The formula on numbers that are made up; tests/cli/vulkan_test.py has the line that it makes.
#include "model/loading/decode_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/loading/test_decode_rate.h"

namespace braid {
namespace {

using ::testing::IsEmpty;

TEST(DecodeRate, CountsWhatATokenReadsAndWhoseTimeItIs) {
  EXPECT_THAT(DecodeRateCases::Failed(), IsEmpty());
}

}  // namespace
}  // namespace braid
