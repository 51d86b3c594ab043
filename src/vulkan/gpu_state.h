// What Gpu, Memory and Recorder share of Vulkan.
#pragma once

#include <volk.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vulkan/gpu.h"

namespace braid::vulkan {

Error VulkanError(std::string_view what, VkResult result);

inline constexpr uint32_t kNoFamily = ~0u;
// Of queues that compute.
uint32_t ComputeFamily(VkPhysicalDevice device);

using KernelKey = std::pair<const char*, KernelConstants>;
// Why braid's kernels cannot run within a device's limits; empty: they can.
std::string TooLittle(const DeviceFacts& facts);
DeviceFacts FactsOf(VkPhysicalDevice device, int index);

struct Allocation {
  VkBuffer buffer = nullptr;
  VkDeviceMemory memory = nullptr;
  int64_t bytes = 0;
};

// A command buffer and the commands in it (recorder.cc), which are submitted again where a later
// step has the same.
struct Recorded {
  VkCommandBuffer buffer = nullptr;
  std::vector<std::byte> log;
  uint64_t step = 0;  // that used it last
};

struct GpuState {
  VkInstance instance = nullptr;
  VkPhysicalDevice physical = nullptr;
  VkDevice device = nullptr;
  VkQueue queue = nullptr;
  std::mutex queue_mutex;  // of submissions and waits: transfers have threads of their own
  VkCommandPool pool = nullptr;
  std::vector<Recorded> recorded;      // of the pool
  uint64_t step = 0;                   // that is being logged, or the last
  bool logging = false;                // false: the next command begins a log
  std::vector<std::byte> log;          // commands since the last Close
  VkCommandBuffer commands = nullptr;  // closed and not submitted
  VkCommandBuffer handed = nullptr;    // up to BeginHandOver, until EndHandOver
  VkSemaphore hand_over = nullptr;     // counts `handed` that are done
  uint64_t hand_overs = 0;             // submitted
  VkFence fence = nullptr;
  VkPipelineLayout layout = nullptr;
  VkQueryPool times = nullptr;  // null: nothing is timed
  uint64_t time_mask = 0;       // of valid bits
  double tick_ns = 0;
  DeviceFacts facts;
  std::array<int64_t, 3> groups_max = {};  // of a dispatch
  Counters counters;
  std::map<KernelKey, VkPipeline> pipelines;
  std::map<std::byte*, Allocation> allocations;  // by their addresses
  int64_t allocated_bytes = 0;
  bool host_addresses_refused = false;
  bool beside_reversed = false;
  Memory staging;

  ~GpuState();
  Status Create();
  // One more in `recorded`.
  VkResult AddBuffer();
  // The one that was used longest ago, or another where this step uses all.
  VkResult FreeBuffer(Recorded*& free);
  // Of `types`, those for this place; the best first.
  std::vector<uint32_t> MemoryTypes(uint32_t types, Place place) const;
  // Memory for made.buffer, of the best type that has so much free.
  VkResult TakeMemory(const VkMemoryRequirements& needs, std::span<const uint32_t> types,
                      Allocation& made) const;
  Result<VkPipeline> PipelineOf(const Kernel& kernel);
  // kInvalid: the device does not take so many workgroups in a dispatch.
  Status Fits(const Kernel& kernel, const Groups& groups) const;
  // The allocation that an address lies in, and how far.
  std::pair<VkBuffer, uint64_t> BufferAt(const std::byte* address) const;
};

}  // namespace braid::vulkan
