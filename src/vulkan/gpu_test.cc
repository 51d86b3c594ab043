// The device itself: memory, copies, kernels, counters; and what is said when there is none.
#include "vulkan/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "vulkan/measure.h"

namespace braid::vulkan {
namespace {

class Device : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto devices = ListDevices();
    if (!devices) GTEST_SKIP() << devices.error().message;
    for (const DeviceFacts& facts : *devices) {
      if (gpu_ != nullptr || !facts.missing.empty()) continue;
      auto gpu = Gpu::Open(facts.index);
      ASSERT_TRUE(gpu.ok()) << gpu.error().message;
      gpu_ = *std::move(gpu);
    }
    if (gpu_ == nullptr) GTEST_SKIP() << "no device can be used";
  }
  std::unique_ptr<Gpu> gpu_;
};

TEST_F(Device, BytesGoThereAndComeBackInOneSubmission) {
  std::vector<uint32_t> sent(10'000'000), got(sent.size());
  std::iota(sent.begin(), sent.end(), 7u);
  const auto bytes = static_cast<int64_t>(sent.size() * 4);
  auto there = gpu_->Allocate(bytes, Place::kDevice);
  auto back = gpu_->Allocate(bytes, Place::kReadback);
  ASSERT_TRUE(there.ok() && back.ok());
  // More than the staging buffer holds.
  ASSERT_TRUE(gpu_->Upload(std::as_bytes(std::span(sent)), there->address()).ok());
  const Counters before = gpu_->counters();
  Recorder recorder(*gpu_);
  const uint32_t changed[] = {1, 2, 3};
  recorder.Write(std::as_bytes(std::span(changed)), there->address() + 400);
  recorder.Copy(there->address(), back->address(), bytes / 2);
  recorder.Copy(there->address() + bytes / 2, back->address() + bytes / 2, bytes - bytes / 2);
  ASSERT_TRUE(recorder.Finish().ok());
  EXPECT_EQ(gpu_->counters().submissions, before.submissions + 1);
  EXPECT_EQ(gpu_->counters().waits, before.waits + 1);
  EXPECT_EQ(gpu_->counters().allocations, before.allocations);
  std::memcpy(got.data(), back->host(), static_cast<size_t>(bytes));
  for (size_t i = 0; i < 3; ++i) sent[100 + i] = changed[i];
  EXPECT_EQ(got, sent);
}

TEST_F(Device, ItsLimitsAreMeasured) {
  const auto limits = MeasureDevice(*gpu_);
  ASSERT_TRUE(limits.ok()) << limits.error().message;
  EXPECT_GT(limits->read_bytes_per_second, 1e7);
  EXPECT_GT(limits->fp32_operations_per_second, 1e7);
}

TEST_F(Device, TooMuchMemoryIsAnErrorWithNumbers) {
  const auto memory = gpu_->Allocate(int64_t{1} << 50, Place::kDevice);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(memory.error().message, ::testing::HasSubstr("1125899906842624 bytes"));
}

TEST_F(Device, ADeviceThatIsNotThereIsNamed) {
  const auto gpu = Gpu::Open(99);
  ASSERT_FALSE(gpu.ok());
  EXPECT_THAT(gpu.error().message, ::testing::HasSubstr("no Vulkan device 99"));
}

}  // namespace
}  // namespace braid::vulkan
