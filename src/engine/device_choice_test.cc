// Which of the listed devices a text means.
#include "engine/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using ::testing::HasSubstr;

std::vector<vulkan::DeviceFacts> Devices(size_t count = 3) {
  std::vector<vulkan::DeviceFacts> all = {
      {.index = 0, .name = "old", .kind = "discrete", .missing = "it lacks something"},
      {.index = 1, .name = "lavapipe", .kind = "software"},
      {.index = 2, .name = "card", .kind = "discrete"}};
  all.resize(count);
  return all;
}

TEST(DeviceChoice, TheFirstUsableDeviceIsTheDefault) {
  EXPECT_EQ(*PickDevice("cpu", Devices()), -1);
  EXPECT_EQ(*PickDevice("vulkan", Devices()), 1);
  EXPECT_EQ(*PickDevice("vulkan:2", Devices()), 2);
}

TEST(DeviceChoice, AutoPrefersTheCpuToSoftware) {
  EXPECT_EQ(*PickDevice("auto", Devices()), 2);
  EXPECT_EQ(*PickDevice("auto", Devices(2)), -1);
  EXPECT_EQ(*PickDevice("auto", {}), -1);
}

TEST(DeviceChoice, ErrorsSayWhatIsThere) {
  EXPECT_THAT(PickDevice("vulkan:0", Devices()).error().message, HasSubstr("it lacks something"));
  EXPECT_THAT(PickDevice("vulkan:3", Devices()).error().message, HasSubstr("there are 3"));
  EXPECT_THAT(PickDevice("vulkan", Devices(1)).error().message,
              HasSubstr("device 0 (old): it lacks something"));
  for (const char* text : {"", "gpu", "vulkan:", "vulkan:1x", "vulkan:-"}) {
    EXPECT_THAT(PickDevice(text, Devices()).error().message, HasSubstr("expected cpu")) << text;
  }
}

TEST(DeviceChoice, OptionsThatDoNotGoWithADeviceMeanTheCpuForAuto) {
  EngineOptions options{.device = "auto", .compute = "bf16"};
  std::string note;
  const auto gpu = OpenDevice(options, note);
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(*gpu, nullptr);
  EXPECT_THAT(note, HasSubstr("a device computes in fp32"));
  options.device = "vulkan";
  EXPECT_FALSE(OpenDevice(options, note).ok());
  options = {.device = "auto", .state_dtype = "int8"};
  ASSERT_TRUE(OpenDevice(options, note).ok());
  EXPECT_THAT(note, HasSubstr("--state-dtype int8; a device keeps state in fp32"));
  options = {.device = "auto", .expert_loads = "loads.json"};
  ASSERT_TRUE(OpenDevice(options, note).ok());
  EXPECT_THAT(note, HasSubstr("--expert-loads; experts are counted on the CPU only"));
}

}  // namespace
}  // namespace braid
