// The device itself: memory, copies, kernels, counters; and what is said when there is none.
#include "vulkan/gpu.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <volk.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "vulkan/gpu_state.h"
#include "vulkan/measure.h"

namespace braid {

extern const std::string_view kShaderAddOne;

namespace vulkan {
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
  recorder.Zero(there->address() + 4000, 40);
  recorder.Write(std::as_bytes(std::span(changed)), there->address() + 400);
  recorder.Copy(there->address(), back->address(), bytes / 2);
  recorder.Copy(there->address() + bytes / 2, back->address() + bytes / 2, bytes - bytes / 2);
  ASSERT_TRUE(recorder.Finish().ok());
  EXPECT_EQ(gpu_->counters().submissions, before.submissions + 1);
  EXPECT_EQ(gpu_->counters().waits, before.waits + 1);
  EXPECT_EQ(gpu_->counters().allocations, before.allocations);
  std::memcpy(got.data(), back->host(), static_cast<size_t>(bytes));
  for (size_t i = 0; i < 3; ++i) sent[100 + i] = changed[i];
  std::fill_n(sent.begin() + 1000, 10, 0u);
  EXPECT_EQ(got, sent);
}

TEST_F(Device, EachKernelRunsOnceBehindTheOneBefore) {
  const auto memory = gpu_->Allocate(256 * 4, Place::kReadback);
  ASSERT_TRUE(memory.ok());
  std::memset(memory->host(), 0, static_cast<size_t>(memory->bytes()));
  Recorder recorder(*gpu_);
  for (int i = 0; i < 3; ++i) {
    recorder.Run({"add_one", kShaderAddOne}, reinterpret_cast<uint64_t>(memory->address()), {});
  }
  ASSERT_TRUE(recorder.Finish().ok());
  const auto* numbers = reinterpret_cast<const uint32_t*>(memory->host());
  EXPECT_THAT(std::vector<uint32_t>(numbers, numbers + 256), ::testing::Each(3u));
}

// Adds one to every number that the device has left there.
struct AddOne final : HostWork {
  uint32_t* numbers = nullptr;
  int64_t count = 0;
  int runs = 0;
  void Run() override {
    ++runs;
    for (int64_t i = 0; i < count; ++i) ++numbers[i];
  }
};

// Numbers go to and fro; what is recorded within a hand-over does not see the host's. A step has
// more command buffers than a device keeps at first.
TEST_F(Device, TheHostTakesPartBetweenSubmissions) {
  constexpr int64_t kCount = 100'000, kBytes = 4 * kCount;
  constexpr int kHandOvers = 20, kLate = 18;
  auto there = gpu_->Allocate(kBytes, Place::kDevice);
  auto beside = gpu_->Allocate(kBytes, Place::kReadback);
  auto seen = gpu_->Allocate(kBytes, Place::kReadback);
  ASSERT_TRUE(there.ok() && beside.ok() && seen.ok());
  std::array<AddOne, 2> works;
  for (AddOne& work : works) {
    work.numbers = reinterpret_cast<uint32_t*>(seen->host());
    work.count = kCount;
  }
  Recorder recorder(*gpu_);
  int64_t allocations = 0;
  for (int round = 0; round < 2; ++round) {
    const Counters before = gpu_->counters();
    recorder.Zero(there->address(), kBytes);
    for (int i = 0; i < kHandOvers; ++i) {
      recorder.Copy(there->address(), seen->address(), kBytes);
      recorder.BeginHandOver();
      if (i == kLate) recorder.Copy(there->address(), beside->address(), kBytes);
      recorder.EndHandOver(works[static_cast<size_t>(i % 2)]);
      recorder.Copy(seen->address(), there->address(), kBytes);
    }
    EXPECT_EQ(works[0].runs + works[1].runs, kHandOvers * (round + 1) - 1)
        << "the last runs in Finish";
    recorder.Copy(there->address(), seen->address(), kBytes);
    ASSERT_TRUE(recorder.Finish().ok());
    const auto all = [&](const Memory& memory, uint32_t value) {
      const auto* numbers = reinterpret_cast<const uint32_t*>(memory.host());
      return std::all_of(numbers, numbers + kCount, [&](uint32_t n) { return n == value; });
    };
    EXPECT_TRUE(all(*seen, kHandOvers));
    EXPECT_TRUE(all(*beside, kLate));
    EXPECT_EQ(gpu_->counters().submissions, before.submissions + kHandOvers + 1);
    EXPECT_EQ(gpu_->counters().waits, before.waits + kHandOvers + 1);
    if (round > 0) {
      EXPECT_EQ(gpu_->counters().allocations, allocations) << "buffers are kept";
    }
    allocations = gpu_->counters().allocations;
  }
}

TEST_F(Device, CommandsThatAreCountedDoNotRun) {
  constexpr int64_t kBytes = 4096;
  const auto memory = gpu_->Allocate(kBytes, Place::kReadback);
  ASSERT_TRUE(memory.ok());
  std::memset(memory->host(), 1, kBytes);
  std::vector<std::byte> seen(memory->host(), memory->host() + kBytes);
  AddOne work;
  const auto record = [&](Recorder& recorder) {
    const uint32_t value = 7;
    recorder.Zero(memory->address(), kBytes);
    recorder.Zero(memory->address(), 0);  // no command
    recorder.BeginHandOver();
    recorder.EndHandOver(work);
    recorder.Write(std::as_bytes(std::span(&value, 1)), memory->address());
    recorder.Copy(memory->address(), memory->address() + 64, 64);
    return recorder.Finish();
  };
  const Counters before = gpu_->counters();
  Counters counted;
  Recorder counting(*gpu_, counted);
  ASSERT_TRUE(record(counting).ok());
  EXPECT_EQ(work.runs, 0);
  EXPECT_EQ(gpu_->counters().submissions, before.submissions);
  EXPECT_EQ(gpu_->counters().copies, before.copies);
  EXPECT_TRUE(std::ranges::equal(seen, std::span(memory->host(), kBytes)));
  Recorder recorder(*gpu_);
  ASSERT_TRUE(record(recorder).ok());
  EXPECT_EQ(work.runs, 1);
  EXPECT_EQ(counted.submissions, gpu_->counters().submissions - before.submissions);
  EXPECT_EQ(counted.copies, gpu_->counters().copies - before.copies);
  EXPECT_EQ(counted.writes, gpu_->counters().writes - before.writes);
  EXPECT_EQ(counted.copies, 2);
  EXPECT_EQ(counted.writes, 1);
  EXPECT_EQ(counted.submissions, 2);
}

TEST_F(Device, MoreWorkgroupsThanItTakesAreAnErrorWithBothNumbers) {
  const Kernel kernel{.name = "wide", .spirv = {}};
  const std::array<uint32_t, 2> arguments = {};
  Counters counted;
  Recorder counting(*gpu_, counted), recorder(*gpu_);
  for (Recorder* one : {&counting, &recorder}) {
    one->Run(kernel, arguments, {1, int64_t{1} << 32});
    const Status status = one->Finish();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("workgroups in y"));
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("wide wants 4294967296"));
    EXPECT_TRUE(one->Finish().ok());
  }
}

TEST_F(Device, AStepWithTheCommandsOfAnEarlierOneIsNotRecordedAgain) {
  const auto memory = gpu_->Allocate(4096, Place::kReadback);
  auto other = gpu_->Allocate(4096, Place::kReadback);
  ASSERT_TRUE(memory.ok() && other.ok());
  Recorder recorder(*gpu_);
  const auto recordings_of = [&](uint32_t value, std::byte* to, int64_t zeros) {
    const int64_t before = gpu_->counters().recordings;
    recorder.Write(std::as_bytes(std::span(&value, 1)), to);
    recorder.Zero(to + 64, zeros);
    EXPECT_TRUE(recorder.Finish().ok());
    return gpu_->counters().recordings - before;
  };
  const auto value = [](const Memory& from) {
    return *reinterpret_cast<const uint32_t*>(from.host());
  };
  EXPECT_EQ(recordings_of(1, memory->address(), 64), 1);
  EXPECT_EQ(value(*memory), 1u);
  EXPECT_EQ(recordings_of(2, memory->address(), 64), 1) << "other data";
  EXPECT_EQ(value(*memory), 2u);
  EXPECT_EQ(recordings_of(2, memory->address(), 128), 1) << "another size";
  EXPECT_EQ(recordings_of(2, other->address(), 128), 1) << "another place";
  EXPECT_EQ(value(*other), 2u);
  EXPECT_EQ(recordings_of(1, memory->address(), 64), 0);
  EXPECT_EQ(value(*memory), 1u);
  EXPECT_EQ(recordings_of(2, other->address(), 128), 0);
  for (uint32_t i = 10; i < 40; ++i) EXPECT_EQ(recordings_of(i, memory->address(), 64), 1);
  EXPECT_EQ(value(*memory), 39u);
  EXPECT_EQ(recordings_of(1, memory->address(), 64), 1) << "the oldest are given up";
  *other = {};  // its buffer's name may be given to the next
  EXPECT_EQ(recordings_of(1, memory->address(), 64), 1);
}

// Injected where the program calls the driver: in the first hand-over and in the wait for it.
TEST_F(Device, AfterALossTheHostDoesNothingAndTheNextStepIsWhole) {
  auto memory = gpu_->Allocate(4096, Place::kReadback);
  ASSERT_TRUE(memory.ok());
  Recorder recorder(*gpu_);
  AddOne work;
  const auto step = [&] {
    recorder.Zero(memory->address(), 4096);
    for (int i = 0; i < 2; ++i) {
      recorder.BeginHandOver();
      recorder.EndHandOver(work);
    }
    return recorder.Finish();
  };
  const PFN_vkQueueSubmit submit = vkQueueSubmit;
  vkQueueSubmit = [](VkQueue, uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_DEVICE_LOST;
  };
  const Status lost = step();
  vkQueueSubmit = submit;
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.error().message, ::testing::HasSubstr("the device is lost"));
  EXPECT_EQ(work.runs, 0);
  const PFN_vkWaitSemaphores wait = vkWaitSemaphores;
  vkWaitSemaphores = [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) {
    return VK_ERROR_DEVICE_LOST;
  };
  const Status lost_later = step();
  vkWaitSemaphores = wait;
  ASSERT_FALSE(lost_later.ok());
  EXPECT_EQ(work.runs, 0);
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(work.runs, 2);
}

// Injected as well: the only memory that is the device's own is one more type, and full.
TEST_F(Device, WhatTheHostWritesLiesInItsMemoryWhereTheDevicesIsFull) {
  static const PFN_vkGetPhysicalDeviceMemoryProperties kProperties =
      vkGetPhysicalDeviceMemoryProperties;
  static const PFN_vkGetBufferMemoryRequirements kNeeds = vkGetBufferMemoryRequirements;
  static const PFN_vkAllocateMemory kAllocate = vkAllocateMemory;
  static constexpr uint32_t kFull = VK_MAX_MEMORY_TYPES - 1;
  vkGetPhysicalDeviceMemoryProperties = [](VkPhysicalDevice device,
                                           VkPhysicalDeviceMemoryProperties* memory) {
    kProperties(device, memory);
    for (uint32_t i = 0; i < kFull; ++i) {
      VkMemoryType& type = memory->memoryTypes[i];
      if (i >= memory->memoryTypeCount) type = {};
      type.propertyFlags &= ~static_cast<VkFlags>(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    }
    memory->memoryTypes[kFull] = {.propertyFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                                   VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                                   VK_MEMORY_PROPERTY_HOST_COHERENT_BIT};
    memory->memoryTypeCount = VK_MAX_MEMORY_TYPES;
  };
  vkGetBufferMemoryRequirements = [](VkDevice device, VkBuffer buffer,
                                     VkMemoryRequirements* needs) {
    kNeeds(device, buffer, needs);
    needs->memoryTypeBits |= 1u << kFull;
  };
  vkAllocateMemory = [](VkDevice device, const VkMemoryAllocateInfo* info,
                        const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
    if (info->memoryTypeIndex == kFull) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return kAllocate(device, info, callbacks, memory);
  };
  const auto seen = gpu_->Allocate(4096, Place::kUpload);
  const auto own = gpu_->Allocate(4096, Place::kDevice);
  vkGetPhysicalDeviceMemoryProperties = kProperties;
  vkGetBufferMemoryRequirements = kNeeds;
  vkAllocateMemory = kAllocate;
  ASSERT_TRUE(seen.ok()) << seen.error().message;
  EXPECT_NE(seen->host(), nullptr);
  ASSERT_FALSE(own.ok());
  EXPECT_EQ(own.error().code, ErrorCode::kExhausted);
}

// Injected as well: types as those of a graphics card; the largest heap is the host's.
TEST_F(Device, ItsMemoryIsOfTheBestTypeForItsPlaceAndItsOwnHeapsCount) {
  uint32_t count = 1;
  GpuState state;
  // VK_INCOMPLETE, which is no error, where there are more.
  ASSERT_GE(vkEnumeratePhysicalDevices(volkGetLoadedInstance(), &count, &state.physical), 0);
  const PFN_vkGetPhysicalDeviceMemoryProperties properties = vkGetPhysicalDeviceMemoryProperties;
  vkGetPhysicalDeviceMemoryProperties = [](VkPhysicalDevice,
                                           VkPhysicalDeviceMemoryProperties* memory) {
    constexpr VkFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                      kSeen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                              VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                      kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    *memory = {.memoryTypeCount = 4,
               .memoryTypes = {{kLocal, 0}, {kSeen, 1}, {kSeen | kCached, 1}, {kLocal | kSeen, 2}},
               .memoryHeapCount = 3,
               .memoryHeaps = {{8000, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                               {64000, 0},
                               {256, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}}};
  };
  const auto own = state.MemoryTypes(15, Place::kDevice);
  const auto written = state.MemoryTypes(15, Place::kUpload);
  const auto read = state.MemoryTypes(15, Place::kReadback);
  const DeviceFacts facts = FactsOf(state.physical, 0);
  vkGetPhysicalDeviceMemoryProperties = properties;
  EXPECT_THAT(own, ::testing::ElementsAre(0, 3));
  EXPECT_THAT(written, ::testing::ElementsAre(3, 1, 2));
  EXPECT_THAT(read, ::testing::ElementsAre(2, 1, 3));
  EXPECT_EQ(facts.memory_bytes, 8000);
}

TEST(DeviceLimits, AreThoseOfTheLargestKernels) {
  DeviceFacts facts{.shared_bytes = 32 << 10, .invocations_max = 256};
  EXPECT_EQ(TooLittle(facts), "");
  facts.shared_bytes -= 1;
  EXPECT_EQ(TooLittle(facts), "its workgroups have 32767 bytes of shared memory; 32768 are needed");
  facts = {.shared_bytes = 32 << 10, .invocations_max = 255};
  EXPECT_EQ(TooLittle(facts), "its workgroups have at most 255 invocations; 256 are needed");
}

TEST_F(Device, TimesWhatItDoesByNames) {
  const auto memory = gpu_->Allocate(1 << 20, Place::kDevice);
  ASSERT_TRUE(memory.ok());
  Recorder recorder(*gpu_);
  recorder.Zero(memory->address(), 64);
  recorder.Mark("nobody asks");
  ASSERT_TRUE(recorder.Finish().ok());
  EXPECT_TRUE(recorder.timed().empty());
  const Status begun = recorder.BeginTiming();
  if (!begun.ok()) GTEST_SKIP() << begun.error().message;
  for (int round = 0; round < 2; ++round) {
    const int64_t before_ns = MonotonicNs();
    recorder.Zero(memory->address(), 1 << 20);
    recorder.Mark("zero");
    recorder.Copy(memory->address(), memory->address() + 1024, 1024);
    recorder.Mark("copy");
    ASSERT_TRUE(recorder.Finish().ok());
    ASSERT_EQ(recorder.timed().size(), 2u);
    const TimedCommands &first = recorder.timed()[0], &second = recorder.timed()[1];
    EXPECT_EQ(first.name, "zero");
    EXPECT_EQ(second.name, "copy");
    EXPECT_GE(first.start_ns, before_ns);
    EXPECT_LE(first.start_ns, first.end_ns);
    EXPECT_EQ(first.end_ns, second.start_ns);
    EXPECT_LE(second.start_ns, second.end_ns);
  }
  ASSERT_TRUE(recorder.Finish().ok());
  EXPECT_TRUE(recorder.timed().empty()) << "nothing was recorded";
}

TEST_F(Device, ItsLimitsAreMeasured) {
  const auto limits = MeasureDevice(*gpu_);
  ASSERT_TRUE(limits.ok()) << limits.error().message;
  EXPECT_GT(limits->read_bytes_per_second, 1e7);
  EXPECT_GT(limits->fp32_operations_per_second, 1e7);
  const auto submission = MeasureSubmission(*gpu_);
  ASSERT_TRUE(submission.ok()) << submission.error().message;
  EXPECT_GT(*submission, 1e-7);
  EXPECT_LT(*submission, kReadBytes / limits->read_bytes_per_second) << "it reads nothing";
  EXPECT_GT(limits->start_seconds, 1e-8);
  EXPECT_LT(limits->start_seconds, kReadBytes / limits->read_bytes_per_second);
  const auto least = MeasureReading(*gpu_, kReadBytesLeast);
  ASSERT_TRUE(least.ok()) << least.error().message;
  EXPECT_GT(*least, 1e7);
}

// Injected where the program calls the driver: a device that does its work in no time.
TEST_F(Device, AFastDeviceIsMeasuredOverManyRunsOfASubmission) {
  static const PFN_vkQueueSubmit kSubmit = vkQueueSubmit;
  vkQueueSubmit = [](VkQueue queue, uint32_t, const VkSubmitInfo*, VkFence fence) {
    return kSubmit(queue, 0, nullptr, fence);
  };
  int64_t most = 0;  // of several tries: this process may wait for a CPU meanwhile
  for (int i = 0; i < 20 && most <= 4; ++i) {
    const int64_t before = gpu_->counters().dispatches;
    EXPECT_TRUE(MeasureReading(*gpu_, kReadBytesLeast).ok());
    most = std::max(most, gpu_->counters().dispatches - before);
  }
  vkQueueSubmit = kSubmit;
  EXPECT_GT(most, 4) << "a run in each submission";
}

TEST_F(Device, TooMuchMemoryIsAnErrorWithNumbers) {
  const auto memory = gpu_->Allocate(int64_t{1} << 50, Place::kDevice);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(memory.error().message, ::testing::HasSubstr("1125899906842624 bytes"));
  const int64_t most = gpu_->facts().buffer_bytes_max;
  const auto more = gpu_->Allocate(most + 1, Place::kDevice);
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.error().message,
              ::testing::HasSubstr(fmt::format("it allows at most {}", most)));
}

// Injected where the program calls the driver.
TEST_F(Device, MemoryThatIsNotFreeIsAnErrorWithBothNumbers) {
  const auto used = gpu_->Allocate(1000, Place::kDevice);
  ASSERT_TRUE(used.ok());
  const PFN_vkAllocateMemory allocate = vkAllocateMemory;
  vkAllocateMemory = [](VkDevice, const VkMemoryAllocateInfo*, const VkAllocationCallbacks*,
                        VkDeviceMemory*) { return VK_ERROR_OUT_OF_DEVICE_MEMORY; };
  const auto memory = gpu_->Allocate(4096, Place::kDevice);
  vkAllocateMemory = allocate;
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(memory.error().message, ::testing::HasSubstr("4096 bytes"));
  EXPECT_THAT(memory.error().message,
              ::testing::HasSubstr(fmt::format("and of its {} bytes 1000 are in use here",
                                               gpu_->facts().memory_bytes)));
}

TEST_F(Device, ALostDeviceIsAnErrorByNameThatEndsWithIt) {
  const auto memory = gpu_->Allocate(4096, Place::kDevice);
  ASSERT_TRUE(memory.ok());
  const PFN_vkQueueSubmit submit = vkQueueSubmit;
  vkQueueSubmit = [](VkQueue, uint32_t, const VkSubmitInfo*, VkFence) {
    return VK_ERROR_DEVICE_LOST;
  };
  Recorder recorder(*gpu_);
  recorder.Zero(memory->address(), 4096);
  const Status lost = recorder.Finish();
  vkQueueSubmit = submit;
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(lost.error().message, ::testing::HasSubstr(gpu_->facts().name));
  EXPECT_THAT(lost.error().message, ::testing::HasSubstr("the device is lost"));
}

TEST_F(Device, ADeviceThatIsNotThereIsNamed) {
  const auto gpu = Gpu::Open(99);
  ASSERT_FALSE(gpu.ok());
  EXPECT_THAT(gpu.error().message, ::testing::HasSubstr("no Vulkan device 99"));
}

}  // namespace
}  // namespace vulkan
}  // namespace braid
