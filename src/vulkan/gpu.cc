// Devices, allocations, pipelines.
#include "vulkan/gpu.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>
#include <volk.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "vulkan/gpu_state.h"

namespace braid::vulkan {
namespace {

constexpr int64_t kStagingBytes = int64_t{16} << 20;
constexpr int kRecordedLeast = 16;  // steps that are kept, where a step has one command buffer

std::string VersionText(uint32_t version) {
  return fmt::format("{}.{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version),
                     VK_API_VERSION_PATCH(version));
}

std::string_view KindText(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return "discrete";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return "integrated";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return "virtual";
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return "software";
    default:
      return "other";
  }
}

// The loader unloads drivers with the last instance, and LeakSanitizer takes what an unloaded one
// keeps for lost.
void KeepDriversLoaded() {
  std::vector<std::string> files;
  const auto note = [](dl_phdr_info* library, size_t, void* to) {
    static_cast<std::vector<std::string>*>(to)->emplace_back(library->dlpi_name);
    return 0;
  };
  ::dl_iterate_phdr(note, &files);
  for (const std::string& file : files) {
    ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

Result<VkInstance> MakeInstance() {
  if (volkInitialize() != VK_SUCCESS) {
    return Error{ErrorCode::kUnavailable,
                 "no Vulkan: libvulkan.so.1 is not installed (Debian: libvulkan1 and a driver, "
                 "such as mesa-vulkan-drivers)"};
  }
  if (volkGetInstanceVersion() < VK_API_VERSION_1_3) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("the Vulkan loader is of version {}; 1.3 is needed",
                             VersionText(volkGetInstanceVersion()))};
  }
  const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                      .pApplicationName = "braid",
                                      .apiVersion = VK_API_VERSION_1_3};
  const VkInstanceCreateInfo create{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                    .pApplicationInfo = &application};
  VkInstance instance = nullptr;
  const VkResult made = vkCreateInstance(&create, nullptr, &instance);
  if (made == VK_ERROR_INCOMPATIBLE_DRIVER) {
    return Error{ErrorCode::kUnavailable,
                 "no Vulkan driver is installed (Debian: mesa-vulkan-drivers)"};
  }
  if (made != VK_SUCCESS) return VulkanError("starting Vulkan", made);
  volkLoadInstance(instance);
  if constexpr (BRAID_KEEP_DRIVERS) KeepDriversLoaded();
  return instance;
}

Result<std::vector<VkPhysicalDevice>> PhysicalDevices(VkInstance instance) {
  uint32_t count = 0;
  VkResult result = vkEnumeratePhysicalDevices(instance, &count, nullptr);
  std::vector<VkPhysicalDevice> devices(count);
  if (result == VK_SUCCESS && count > 0) {
    result = vkEnumeratePhysicalDevices(instance, &count, devices.data());
  }
  if (result != VK_SUCCESS) return VulkanError("listing devices", result);
  if (count == 0) {
    return Error{ErrorCode::kUnavailable,
                 "no Vulkan device: no driver is installed (Debian: mesa-vulkan-drivers)"};
  }
  return devices;
}

// What the kernels use beyond Vulkan 1.3's own.
std::string Missing(VkPhysicalDevice device, uint32_t api_version) {
  if (api_version < VK_API_VERSION_1_3) {
    return fmt::format("its driver has Vulkan {}; 1.3 is needed", VersionText(api_version));
  }
  VkPhysicalDeviceVulkan12Features features12{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceFeatures2 features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &features12};
  vkGetPhysicalDeviceFeatures2(device, &features);
  if (!features12.bufferDeviceAddress) return "it lacks the feature bufferDeviceAddress";
  if (!features.features.shaderInt64) return "it lacks the feature shaderInt64";
  if (ComputeFamily(device) == kNoFamily) return "it has no queue for compute";
  return "";
}

}  // namespace

// attention.comp has the most of shared memory, 28 KiB; kernels with more invocations come in
// several sizes.
std::string TooLittle(const DeviceFacts& facts) {
  constexpr int32_t kSharedBytes = 32 << 10, kInvocations = 256;
  if (facts.shared_bytes < kSharedBytes) {
    return fmt::format("its workgroups have {} bytes of shared memory; {} are needed",
                       facts.shared_bytes, kSharedBytes);
  }
  if (facts.invocations_max < kInvocations) {
    return fmt::format("its workgroups have at most {} invocations; {} are needed",
                       facts.invocations_max, kInvocations);
  }
  return "";
}

DeviceFacts FactsOf(VkPhysicalDevice device, int index) {
  VkPhysicalDeviceVulkan13Properties properties13{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
  VkPhysicalDeviceVulkan11Properties properties11{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &properties13};
  VkPhysicalDeviceDriverProperties driver{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, .pNext = &properties11};
  VkPhysicalDeviceProperties2 all{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                  .pNext = &driver};
  vkGetPhysicalDeviceProperties2(device, &all);
  const VkPhysicalDeviceProperties& p = all.properties;
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(device, &memory);
  DeviceFacts facts{
      .index = index,
      .name = p.deviceName,
      .driver = fmt::format("{} {}", driver.driverName, driver.driverInfo),
      .version = VersionText(p.apiVersion),
      .kind = std::string(KindText(p.deviceType)),
      .buffer_bytes_max = static_cast<int64_t>(
          std::min<uint64_t>(properties11.maxMemoryAllocationSize, uint64_t{1} << 62)),
      .subgroup = static_cast<int32_t>(properties11.subgroupSize),
      .shared_bytes = static_cast<int32_t>(p.limits.maxComputeSharedMemorySize),
      .invocations_max = static_cast<int32_t>(p.limits.maxComputeWorkGroupInvocations),
      .fast_dots = properties13.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE,
      .missing = Missing(device, p.apiVersion)};
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryHeaps[i];
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
    facts.memory_bytes = std::max(facts.memory_bytes, static_cast<int64_t>(heap.size));
  }
  if (facts.missing.empty()) facts.missing = TooLittle(facts);
  return facts;
}

uint32_t ComputeFamily(VkPhysicalDevice device) {
  uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  for (uint32_t i = 0; i < count; ++i) {
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) return i;
  }
  return kNoFamily;
}

Error VulkanError(std::string_view what, VkResult result) {
  switch (result) {
    case VK_ERROR_DEVICE_LOST:
      return {ErrorCode::kUnavailable,
              fmt::format("{}: the device is lost: its driver reset it, or it was removed", what)};
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return {ErrorCode::kExhausted, fmt::format("{}: out of memory", what)};
    default:
      return {ErrorCode::kInternal,
              fmt::format("{}: Vulkan error {}", what, static_cast<int>(result))};
  }
}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(gpu_, other.gpu_);
  std::swap(address_, other.address_);
  std::swap(host_, other.host_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory::~Memory() {
  if (gpu_ == nullptr) return;
  const auto at = gpu_->allocations.find(address_);
  CHECK(at != gpu_->allocations.end(), "device memory is freed twice");
  vkDestroyBuffer(gpu_->device, at->second.buffer, nullptr);
  vkFreeMemory(gpu_->device, at->second.memory, nullptr);
  for (Recorded& recorded : gpu_->recorded) recorded.log.clear();  // they may name the buffer
  gpu_->allocated_bytes -= bytes_;
  gpu_->allocations.erase(at);
}

GpuState::~GpuState() {
  if (device != nullptr) {
    vkDeviceWaitIdle(device);
    staging = {};
    for (const auto& [key, pipeline] : pipelines) vkDestroyPipeline(device, pipeline, nullptr);
    vkDestroyPipelineLayout(device, layout, nullptr);
    vkDestroyQueryPool(device, times, nullptr);
    vkDestroyFence(device, fence, nullptr);
    vkDestroySemaphore(device, hand_over, nullptr);
    vkDestroyCommandPool(device, pool, nullptr);
    vkDestroyDevice(device, nullptr);
  }
  if (instance != nullptr) vkDestroyInstance(instance, nullptr);
}

Status GpuState::Create() {
  const uint32_t family = ComputeFamily(physical);
  const float priority = 1.0f;
  const VkDeviceQueueCreateInfo queues{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                       .queueFamilyIndex = family,
                                       .queueCount = 1,
                                       .pQueuePriorities = &priority};
  // Every driver of 1.3 has both: products of four bytes each, and sizes of workgroups as
  // constants, which glslc writes.
  VkPhysicalDeviceVulkan13Features features13{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
      .shaderIntegerDotProduct = true,
      .maintenance4 = true};
  VkPhysicalDeviceVulkan12Features features12{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
      .pNext = &features13,
      .timelineSemaphore = true,  // every driver of 1.2 has it
      .bufferDeviceAddress = true};
  const VkPhysicalDeviceFeatures2 features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                           .pNext = &features12,
                                           .features = {.shaderInt64 = true}};
  const VkDeviceCreateInfo create{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                  .pNext = &features,
                                  .queueCreateInfoCount = 1,
                                  .pQueueCreateInfos = &queues};
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(physical, &properties);
  std::ranges::copy(properties.limits.maxComputeWorkGroupCount, groups_max.begin());
  VkResult result = vkCreateDevice(physical, &create, nullptr, &device);
  if (result != VK_SUCCESS) return VulkanError("opening " + facts.name, result);
  vkGetDeviceQueue(device, family, 0, &queue);
  const VkCommandPoolCreateInfo pools{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                      .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                      .queueFamilyIndex = family};
  const VkPushConstantRange arguments{VK_SHADER_STAGE_COMPUTE_BIT, 0, kArgumentBytesMax};
  const VkPipelineLayoutCreateInfo layouts{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                           .pushConstantRangeCount = 1,
                                           .pPushConstantRanges = &arguments};
  const VkFenceCreateInfo fences{.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  const VkSemaphoreTypeCreateInfo counting{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                           .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo semaphores{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                         .pNext = &counting};
  result = vkCreateCommandPool(device, &pools, nullptr, &pool);
  if (result == VK_SUCCESS) result = vkCreatePipelineLayout(device, &layouts, nullptr, &layout);
  if (result == VK_SUCCESS) result = vkCreateFence(device, &fences, nullptr, &fence);
  if (result == VK_SUCCESS) result = vkCreateSemaphore(device, &semaphores, nullptr, &hand_over);
  for (int i = 0; i < kRecordedLeast && result == VK_SUCCESS; ++i) result = AddBuffer();
  if (result != VK_SUCCESS) return VulkanError("opening " + facts.name, result);
  return {};
}

Status GpuState::Fits(const Kernel& kernel, const Groups& groups) const {
  const std::array<int64_t, 3> wanted = {groups.x, groups.y, groups.z};
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] <= groups_max[i]) continue;
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} takes at most {} workgroups in {}, and {} wants {}", facts.name,
                             groups_max[i], "xyz"[i], kernel.name, wanted[i])};
  }
  return {};
}

VkResult GpuState::AddBuffer() {
  const VkCommandBufferAllocateInfo one{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = pool,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
  Recorded made;
  const VkResult result = vkAllocateCommandBuffers(device, &one, &made.buffer);
  if (result != VK_SUCCESS) return result;
  recorded.push_back(std::move(made));
  ++counters.allocations;
  return VK_SUCCESS;
}

VkResult GpuState::FreeBuffer(Recorded*& free) {
  const auto oldest = std::ranges::min_element(recorded, {}, &Recorded::step);
  if (oldest != recorded.end() && oldest->step != step) {
    free = &*oldest;
    return VK_SUCCESS;
  }
  const VkResult result = AddBuffer();
  if (result == VK_SUCCESS) free = &recorded.back();
  return result;
}

std::vector<uint32_t> GpuState::MemoryTypes(uint32_t types, Place place) const {
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kSeen =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  // The best first.
  const std::array<VkMemoryPropertyFlags, 2> wanted =
      place == Place::kDevice   ? std::array{kLocal, kLocal}
      : place == Place::kUpload ? std::array{kSeen | kLocal, kSeen}
                                : std::array{kSeen | kCached, kSeen};
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(physical, &memory);
  std::vector<uint32_t> found;
  for (const VkMemoryPropertyFlags flags : wanted) {
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const VkMemoryPropertyFlags has = memory.memoryTypes[i].propertyFlags;
      // Others are for purposes of their own, such as protected memory.
      const bool plain = (has & ~(kLocal | kSeen | kCached)) == 0;
      const bool allowed = (types >> i & 1) != 0 && std::ranges::count(found, i) == 0;
      if (plain && allowed && (has & flags) == flags) found.push_back(i);
    }
  }
  return found;
}

// The heap of the best type may be small: of a device's memory the host often sees 256 MiB.
VkResult GpuState::TakeMemory(const VkMemoryRequirements& needs, std::span<const uint32_t> types,
                              Allocation& made) const {
  const VkMemoryAllocateFlagsInfo flags{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  for (const uint32_t type : types) {
    const VkMemoryAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                        .pNext = &flags,
                                        .allocationSize = needs.size,
                                        .memoryTypeIndex = type};
    result = vkAllocateMemory(device, &allocate, nullptr, &made.memory);
    if (result == VK_SUCCESS) return result;
    made.memory = nullptr;
  }
  return result;
}

std::pair<VkBuffer, uint64_t> GpuState::BufferAt(const std::byte* address) const {
  auto at = allocations.upper_bound(const_cast<std::byte*>(address));
  CHECK(at != allocations.begin(), "an address outside device memory");
  --at;
  const auto offset = static_cast<uint64_t>(address - at->first);
  CHECK(offset < static_cast<uint64_t>(at->second.bytes), "an address outside device memory");
  return {at->second.buffer, offset};
}

Result<VkPipeline> GpuState::PipelineOf(const Kernel& kernel) {
  const KernelKey key(kernel.spirv.data(), kernel.constants);
  if (const auto at = pipelines.find(key); at != pipelines.end()) return at->second;
  std::vector<uint32_t> words(kernel.spirv.size() / 4);
  std::memcpy(words.data(), kernel.spirv.data(), words.size() * 4);
  const VkShaderModuleCreateInfo modules{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                         .codeSize = words.size() * 4,
                                         .pCode = words.data()};
  VkShaderModule module = nullptr;
  VkResult result = vkCreateShaderModule(device, &modules, nullptr, &module);
  if (result != VK_SUCCESS) return VulkanError(kernel.name, result);
  std::array<VkSpecializationMapEntry, std::tuple_size_v<KernelConstants>> entries;
  for (uint32_t i = 0; i < entries.size(); ++i) entries[i] = {i, i * 4, 4};
  const VkSpecializationInfo constants{entries.size(), entries.data(), sizeof kernel.constants,
                                       kernel.constants.data()};
  const VkComputePipelineCreateInfo create{
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = "main",
                .pSpecializationInfo = &constants},
      .layout = layout};
  VkPipeline pipeline = nullptr;
  result = vkCreateComputePipelines(device, nullptr, 1, &create, nullptr, &pipeline);
  vkDestroyShaderModule(device, module, nullptr);
  if (result != VK_SUCCESS) return VulkanError(kernel.name, result);
  ++counters.pipelines;
  pipelines.emplace(key, pipeline);
  return pipeline;
}

Result<std::vector<DeviceFacts>> ListDevices() {
  ASSIGN_OR_RETURN(const VkInstance instance, MakeInstance());
  const Result<std::vector<VkPhysicalDevice>> devices = PhysicalDevices(instance);
  std::vector<DeviceFacts> facts;
  for (size_t i = 0; devices && i < devices->size(); ++i) {
    facts.push_back(FactsOf((*devices)[i], static_cast<int>(i)));
  }
  vkDestroyInstance(instance, nullptr);
  if (!devices) return devices.error();
  return facts;
}

Gpu::Gpu(std::unique_ptr<GpuState> state) : state_(std::move(state)) {}
Gpu::~Gpu() = default;

Result<std::unique_ptr<Gpu>> Gpu::Open(int index) {
  auto state = std::make_unique<GpuState>();
  ASSIGN_OR_RETURN(state->instance, MakeInstance());
  ASSIGN_OR_RETURN(const std::vector<VkPhysicalDevice> devices, PhysicalDevices(state->instance));
  if (index < 0 || index >= static_cast<int>(devices.size())) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("there is no Vulkan device {}: there are {}, counted from 0", index,
                             devices.size()),
                 "device"};
  }
  state->physical = devices[static_cast<size_t>(index)];
  state->facts = FactsOf(state->physical, index);
  if (!state->facts.missing.empty()) {
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("Vulkan device {} ({}): {}", index, state->facts.name, state->facts.missing),
        "device"};
  }
  RETURN_IF_ERROR(state->Create());
  return std::unique_ptr<Gpu>(new Gpu(std::move(state)));
}

void Gpu::ReverseBeside(bool reverse) {
  state_->beside_reversed = reverse;
  for (Recorded& recorded : state_->recorded) recorded.log.clear();
}
void Gpu::RefuseHostAddresses() { state_->host_addresses_refused = true; }
const DeviceFacts& Gpu::facts() const { return state_->facts; }
const Counters& Gpu::counters() const { return state_->counters; }

Result<Memory> Gpu::Allocate(int64_t bytes, Place place) {
  GpuState& s = *state_;
  CHECK(bytes > 0);
  const auto exhausted = [&](std::string_view why) {
    return Error{
        ErrorCode::kExhausted,
        fmt::format("{}: {} bytes of memory are wanted at once, {}", s.facts.name, bytes, why),
        "device"};
  };
  if (bytes > s.facts.buffer_bytes_max) {
    return exhausted(fmt::format("it allows at most {}", s.facts.buffer_bytes_max));
  }
  const VkBufferCreateInfo buffers{
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
      .size = static_cast<VkDeviceSize>(bytes),
      .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
  Allocation made{.bytes = bytes};
  VkResult result = vkCreateBuffer(s.device, &buffers, nullptr, &made.buffer);
  if (result != VK_SUCCESS) return exhausted("which its driver refuses");
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(s.device, made.buffer, &needs);
  const std::vector<uint32_t> types = s.MemoryTypes(needs.memoryTypeBits, place);
  if (types.empty()) {
    vkDestroyBuffer(s.device, made.buffer, nullptr);
    return Error{ErrorCode::kInternal, s.facts.name + " has no memory that this use needs"};
  }
  result = s.TakeMemory(needs, types, made);
  if (result == VK_SUCCESS) result = vkBindBufferMemory(s.device, made.buffer, made.memory, 0);
  void* host = nullptr;
  if (result == VK_SUCCESS && place != Place::kDevice) {
    result = vkMapMemory(s.device, made.memory, 0, VK_WHOLE_SIZE, 0, &host);
  }
  if (result != VK_SUCCESS) {
    vkDestroyBuffer(s.device, made.buffer, nullptr);
    if (made.memory != nullptr) vkFreeMemory(s.device, made.memory, nullptr);
    return exhausted(fmt::format("and of its {} bytes {} are in use here", s.facts.memory_bytes,
                                 s.allocated_bytes));
  }
  const VkBufferDeviceAddressInfo address{.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                          .buffer = made.buffer};
  Memory memory;
  memory.gpu_ = &s;
  memory.address_ = reinterpret_cast<std::byte*>(vkGetBufferDeviceAddress(s.device, &address));
  memory.host_ = static_cast<std::byte*>(host);
  memory.bytes_ = bytes;
  s.allocations.emplace(memory.address_, made);
  s.allocated_bytes += bytes;
  ++s.counters.allocations;
  return memory;
}

Status Gpu::Upload(std::span<const std::byte> from, std::byte* to) {
  Memory& staging = state_->staging;
  if (staging.bytes() == 0) {
    ASSIGN_OR_RETURN(staging, Allocate(kStagingBytes, Place::kUpload));
  }
  while (!from.empty()) {
    const size_t count = std::min(from.size(), static_cast<size_t>(kStagingBytes));
    std::memcpy(staging.host(), from.data(), count);
    Recorder recorder(*this);
    recorder.Copy(staging.address(), to, static_cast<int64_t>(count));
    RETURN_IF_ERROR(recorder.Finish());
    from = from.subspan(count);
    to += count;
  }
  return {};
}

}  // namespace braid::vulkan
