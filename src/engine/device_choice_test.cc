// Which of the listed devices a text means.
#include "engine/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "model/families/families.h"
#include "model/loading/load_weights.h"
#include "model/loading/weight_binding.h"

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

TEST(DeviceChoice, EachOptionThatADeviceLacksIsNamed) {
  const std::pair<EngineOptions, const char*> cases[] = {
      {{.mesh = {.dp = 2}}, "--tp, --dp or --ep; a device is one rank"},
      {{.mesh = {.tp = 2}}, "--tp, --dp or --ep; a device is one rank"},
      {{.compute = "bf16"}, "--compute bf16; a device computes in fp32"},
      {{.state_dtype = "bf16"}, "--state-dtype bf16; a device keeps state in fp32"},
      {{.expert_loads = "f"}, "--expert-loads; experts are counted on the CPU only"},
      {{.mla = "expanded"}, "--mla expanded; use --mla absorbed"},
  };
  for (auto [options, said] : cases) {
    options.device = "vulkan:9";
    std::string note;
    const auto gpu = OpenDevice(options, note);
    ASSERT_FALSE(gpu) << said;
    EXPECT_EQ(gpu.error().message, std::string("--device vulkan:9 does not go with ") + said);
    EXPECT_EQ(gpu.error().field, "device");
    EXPECT_EQ(note, "");
    options.device = "cpu";
    EXPECT_TRUE(OpenDevice(options, note)) << "the CPU has them all";
    EXPECT_EQ(note, "");
  }
}

TEST(DeviceChoice, OnlyAutoGivesWayAndOnlyToAnErrorOfTheDevice) {
  const Status of_device = Error{ErrorCode::kInvalid, "it lacks an op", "device"};
  const Status other = Error{ErrorCode::kInvalid, "no such file", "model"};
  EngineOptions options{.device = "auto"};
  const Status expands = Error{ErrorCode::kInvalid, "it needs --expand", "expand"};
  EXPECT_TRUE(EngineDevice::GivesWay(options, of_device));
  EXPECT_TRUE(EngineDevice::GivesWay(options, expands)) << "the CPU may keep the weights";
  EXPECT_FALSE(EngineDevice::GivesWay(options, other));
  EXPECT_FALSE(EngineDevice::GivesWay(options, {}));
  options.device = "vulkan";
  EXPECT_FALSE(EngineDevice::GivesWay(options, of_device));
  const EngineOptions cpu = OnCpu({.model_dir = "m", .device = "auto", .kv_dtype = "int8"});
  EXPECT_EQ(cpu.device, "cpu");
  EXPECT_EQ(cpu.model_dir, "m");
  EXPECT_EQ(cpu.kv_dtype, "int8");
}

TEST(DeviceChoice, TheMachineIsALine) {
  Machine machine{.kv_dtype = DType::kBF16, .state_dtype = DType::kI8, .threads = 3};
  machine.device.isa = Isa::kAvx2;
  EXPECT_EQ(TextOf(machine, "cpu", "absorbed", "1 GiB of bf16"),
            "3 threads, device cpu, ISA avx2, compute fp32, keys and values bf16, state i8, mla "
            "absorbed, weights 1 GiB of bf16");
  machine.device.compute = Compute::kBF16;
  EXPECT_THAT(TextOf(machine, "cpu", "", ""), HasSubstr("compute bf16"));
}

// A wrong text is an error wherever it is said, also where no device is.
TEST(DeviceChoice, WithoutVulkanOnlyAutoAndTheCpuDo) {
  const std::vector<const char*> variables = {"VK_ICD_FILENAMES", "VK_DRIVER_FILES"};
  for (const char* name : variables) ASSERT_EQ(::setenv(name, "/nonexistent.json", 1), 0);
  std::string note;
  const auto opened = [&](const char* device) { return OpenDevice({.device = device}, note); };
  EXPECT_THAT(opened("gpu").error().message, HasSubstr("--device gpu: expected cpu, vulkan"));
  EXPECT_THAT(opened("vulkan").error().message, HasSubstr("--device vulkan: no Vulkan"));
  EXPECT_EQ(note, "");
  const auto automatic = opened("auto");
  ASSERT_TRUE(automatic) << automatic.error().message;
  EXPECT_EQ(*automatic, nullptr);
  EXPECT_THAT(note, HasSubstr("no Vulkan"));
  for (const char* name : variables) ::unsetenv(name);
}

// What is expected of a device is made of its rates and of the kernels of a step.
TEST(DeviceChoice, ADevicesSpeedIsThatOfItsKernels) {
  EngineOptions options{.device = "vulkan", .threads = 1};
  std::string note;
  if (!OpenDevice(options, note)) GTEST_SKIP() << "no Vulkan device can be used";
  EngineDevice device;
  const Result<Machine> machine = device.Open(options);
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_TRUE(device.used());
  EXPECT_THAT(device.name(), ::testing::StartsWith("vulkan:"));
  EXPECT_THAT(device.PagesText(), ::testing::EndsWith("experts on it"));
  const Result<OpenedModel> opened = OpenModel(BRAID_SOURCE_DIR "/models/braid-tiny");
  ASSERT_TRUE(opened);
  const ModelSpec& spec = opened->spec;
  Result<Binding> binding = BindWeights(spec, opened->checkpoint);
  ASSERT_TRUE(binding);
  MemoryRequest request{.kv_dtype = machine->kv_dtype,
                        .workspace_bytes = WorkspaceBytes(spec, 64),
                        .arena_bytes = 16 << 20,
                        .model_len_max = 512,
                        .running_max = 2};
  for (const auto& [format, bytes] : WeightBytesOf(binding->report)) request.weight_bytes += bytes;
  const Result<MemoryPlan> plan = device.Plan(spec, request, *binding);
  ASSERT_TRUE(plan) << plan.error().message;
  ThreadPool pool(1);
  Result<ModelWeights> weights = LoadWeights(*std::move(binding), pool);
  ASSERT_TRUE(weights);
  const SchedulerConfig limits{.cache = plan->geometry,
                               .context_tokens_max = plan->model_len_max,
                               .step_tokens_max = 64,
                               .running_max = 2};
  const Status moved = device.Move(spec, *weights, limits, machine->kv_dtype);
  ASSERT_TRUE(moved) << moved.error().message;
  const vulkan::Counters& step = device.home()->decode_step();
  EXPECT_EQ(device.decode_kernels(), step.dispatches - step.beside + step.copies);
  EXPECT_GT(device.start_seconds(), 0);
  // The line says how long a token takes, to a tenth of a millisecond, and so does the figure.
  const std::string lead = "of a token's ";
  const size_t at = device.rate_text().find(lead);
  ASSERT_NE(at, std::string::npos) << device.rate_text();
  const double ms = std::stod(device.rate_text().substr(at + lead.size()));
  EXPECT_NEAR(1e3 / device.tokens_per_second(), ms, 0.051);
}

// Without one: the CPU's memory is planned, nothing is measured and nothing moves.
TEST(DeviceChoice, TheCpuIsNoDevice) {
  EngineDevice device;
  const Result<Machine> machine = device.Open({.device = "cpu", .threads = 1});
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->threads, 1);
  EXPECT_FALSE(device.used());
  EXPECT_EQ(device.name(), "cpu");
  EXPECT_EQ(device.PagesText(), "");
  EXPECT_EQ(device.rate_text(), "");
  EXPECT_EQ(device.tokens_per_second(), 0);
  EXPECT_EQ(device.start_seconds(), 0);
  MemoryPlan plan{.weight_bytes = 7, .host_weight_bytes = 3};
  device.Divide(plan);
  EXPECT_EQ(plan.weight_bytes, 7);
  EXPECT_EQ(device.home(), nullptr);
}

}  // namespace
}  // namespace braid
