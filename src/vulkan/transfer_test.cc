// What passes between the host and an allocation while steps run: every byte, in both directions.
#include "vulkan/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <volk.h>

#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "vulkan/test_transfer.h"

namespace braid::vulkan {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TransferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    gpu_ = TransferCases::OpenAny();
    if (gpu_ == nullptr) GTEST_SKIP() << "no Vulkan device can be used";
  }
  std::unique_ptr<Gpu> gpu_;
};

TEST_F(TransferTest, PiecesGoThereAndComeBackWhateverTheirSizes) {
  EXPECT_THAT(TransferCases::Failed(*gpu_), IsEmpty());
}

// The queue is one: neither side disturbs the other.
TEST_F(TransferTest, StepsRunBesideTransfersOfSeveralThreads) {
  constexpr int64_t kBytes = 1 << 20, kThreads = 3;
  auto memory = gpu_->Allocate(kBytes * (kThreads + 1), Place::kDevice);
  auto seen = gpu_->Allocate(kBytes, Place::kReadback);
  ASSERT_TRUE(memory.ok() && seen.ok());
  auto transfer = Transfer::Create(*gpu_, *memory, 100'000);
  ASSERT_TRUE(transfer.ok());
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(kThreads);
  for (int64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> sent(kBytes), got(kBytes);
      std::byte* there = memory->address() + t * kBytes;
      for (int round = 0; round < 10; ++round) {
        std::fill(sent.begin(), sent.end(), static_cast<std::byte>(16 * t + round));
        const Transfer::Piece out[] = {{there, sent}}, back[] = {{there, got}};
        if (!(*transfer)->ToDevice(out) || !(*transfer)->ToHost(back)) {
          wrong[static_cast<size_t>(t)] = "an error";
        }
        if (got != sent) wrong[static_cast<size_t>(t)] = "other bytes";
      }
    });
  }
  Recorder recorder(*gpu_);
  std::byte* own = memory->address() + kThreads * kBytes;
  for (int step = 0; step < 20; ++step) {
    const auto word = static_cast<uint32_t>(step + 1);
    recorder.Zero(own, kBytes);
    recorder.Write(std::as_bytes(std::span(&word, 1)), own + 4 * step);
    recorder.Copy(own, seen->address(), kBytes);
    ASSERT_TRUE(recorder.Finish().ok());
    uint32_t there = 0;
    std::memcpy(&there, seen->host() + 4 * step, 4);
    EXPECT_EQ(there, word);
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& each : wrong) EXPECT_EQ(each, "");
}

TEST_F(TransferTest, SeesWhatTheStepBeforeItWrote) {
  auto memory = gpu_->Allocate(4096, Place::kDevice);
  ASSERT_TRUE(memory.ok());
  auto transfer = Transfer::Create(*gpu_, *memory);
  ASSERT_TRUE(transfer.ok());
  Recorder recorder(*gpu_);
  for (uint32_t step = 0; step < 50; ++step) {
    const std::vector<uint32_t> sent(1024, step);
    std::vector<uint32_t> got(1024);
    recorder.Write(std::as_bytes(std::span(sent)), memory->address());
    ASSERT_TRUE(recorder.Finish().ok());
    const Transfer::Piece back[] = {{memory->address(), std::as_writable_bytes(std::span(got))}};
    ASSERT_TRUE((*transfer)->ToHost(back).ok());
    ASSERT_EQ(got, sent);
  }
}

TEST_F(TransferTest, ALostDeviceIsAnError) {
  auto memory = gpu_->Allocate(4096, Place::kDevice);
  ASSERT_TRUE(memory.ok());
  auto transfer = Transfer::Create(*gpu_, *memory);
  ASSERT_TRUE(transfer.ok());
  std::vector<std::byte> bytes(100);
  const Transfer::Piece piece[] = {{memory->address(), bytes}};
  const PFN_vkQueueSubmit submit = vkQueueSubmit;
  vkQueueSubmit = [](VkQueue, uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_DEVICE_LOST;
  };
  const Status out = (*transfer)->ToHost(piece), in = (*transfer)->ToDevice(piece);
  vkQueueSubmit = submit;
  ASSERT_FALSE(out.ok());
  ASSERT_FALSE(in.ok());
  EXPECT_EQ(out.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(in.error().message, HasSubstr("the device is lost"));
  EXPECT_TRUE((*transfer)->ToHost(piece).ok()) << "nothing is left of an error";
}

}  // namespace
}  // namespace braid::vulkan
