// See the header.
#include "vulkan/transfer.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "vulkan/gpu_state.h"

namespace braid::vulkan {

struct Transfer::State {
  explicit State(GpuState& state) : gpu(state) {}
  ~State() {
    vkDestroyFence(gpu.device, fence, nullptr);
    vkDestroyCommandPool(gpu.device, pool, nullptr);
  }
  Status Create();
  // A part of a piece, and where it lies in the staging memory.
  struct Copy {
    VkBufferCopy region;  // from the allocation to the staging memory
    std::byte* here;
  };
  Status Move(std::span<const Piece> pieces, bool to_host);
  Status Submit(bool to_host);

  GpuState& gpu;
  VkBuffer buffer = nullptr;  // of the allocation
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  Memory staging;
  VkBuffer staging_buffer = nullptr;
  VkCommandPool pool = nullptr;
  VkCommandBuffer commands = nullptr;
  VkFence fence = nullptr;

  std::mutex mutex;  // of all that follows, and of the above
  std::vector<Copy> copies;
  std::vector<VkBufferCopy> regions;
  int64_t staged = 0;
};

Transfer::Transfer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Transfer::~Transfer() = default;

Result<std::unique_ptr<Transfer>> Transfer::Create(Gpu& gpu, const Memory& memory,
                                                   int64_t at_once) {
  auto state = std::make_unique<State>(*gpu.state_);
  state->buffer = gpu.state_->BufferAt(memory.address()).first;
  state->begin = memory.address();
  state->bytes = memory.bytes();
  ASSIGN_OR_RETURN(state->staging, gpu.Allocate(at_once, Place::kReadback));
  state->staging_buffer = gpu.state_->BufferAt(state->staging.address()).first;
  RETURN_IF_ERROR(state->Create());
  return std::unique_ptr<Transfer>(new Transfer(std::move(state)));
}

Status Transfer::State::Create() {
  const VkCommandPoolCreateInfo pools{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                      .queueFamilyIndex = ComputeFamily(gpu.physical)};
  const VkFenceCreateInfo fences{.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkResult result = vkCreateCommandPool(gpu.device, &pools, nullptr, &pool);
  if (result == VK_SUCCESS) result = vkCreateFence(gpu.device, &fences, nullptr, &fence);
  const VkCommandBufferAllocateInfo one{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = pool,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
  if (result == VK_SUCCESS) result = vkAllocateCommandBuffers(gpu.device, &one, &commands);
  return result == VK_SUCCESS ? Status() : VulkanError(gpu.facts.name, result);
}

Status Transfer::ToHost(std::span<const Piece> pieces) { return state_->Move(pieces, true); }
Status Transfer::ToDevice(std::span<const Piece> pieces) { return state_->Move(pieces, false); }

Status Transfer::State::Move(std::span<const Piece> pieces, bool to_host) {
  std::lock_guard lock(mutex);
  copies.clear();
  staged = 0;
  for (const Piece& piece : pieces) {
    const int64_t size = std::ssize(piece.here);
    CHECK(piece.there >= begin && piece.there + size <= begin + bytes,
          "a piece outside the allocation");
    for (int64_t at = 0; at < size;) {
      if (staged == staging.bytes()) RETURN_IF_ERROR(Submit(to_host));
      const int64_t count = std::min(size - at, staging.bytes() - staged);
      const VkBufferCopy region{.srcOffset = static_cast<uint64_t>(piece.there + at - begin),
                                .dstOffset = static_cast<uint64_t>(staged),
                                .size = static_cast<uint64_t>(count)};
      copies.push_back({region, piece.here.data() + at});
      staged += count;
      at += count;
    }
  }
  return copies.empty() ? Status() : Submit(to_host);
}

// What is in `copies`, and waits for it.
Status Transfer::State::Submit(bool to_host) {
  regions.clear();
  for (Copy& copy : copies) {
    if (!to_host) {
      std::memcpy(staging.host() + copy.region.dstOffset, copy.here, copy.region.size);
      std::swap(copy.region.srcOffset, copy.region.dstOffset);
    }
    regions.push_back(copy.region);
  }
  const VkCommandBufferBeginInfo begins{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  VkResult result = vkResetCommandPool(gpu.device, pool, 0);
  if (result == VK_SUCCESS) result = vkBeginCommandBuffer(commands, &begins);
  if (result != VK_SUCCESS) return VulkanError(gpu.facts.name, result);
  // Of steps that were submitted before; the recorder has such a barrier in front of each command.
  constexpr VkPipelineStageFlags kStages =
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  const VkMemoryBarrier before{
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
  vkCmdPipelineBarrier(commands, kStages, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &before, 0, nullptr,
                       0, nullptr);
  vkCmdCopyBuffer(commands, to_host ? buffer : staging_buffer, to_host ? staging_buffer : buffer,
                  static_cast<uint32_t>(regions.size()), regions.data());
  const VkMemoryBarrier after{.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                              .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                              .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                       &after, 0, nullptr, 0, nullptr);
  result = vkEndCommandBuffer(commands);
  const VkSubmitInfo submits{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .commandBufferCount = 1,
                             .pCommandBuffers = &commands};
  if (result == VK_SUCCESS) {
    std::lock_guard lock(gpu.queue_mutex);
    result = vkQueueSubmit(gpu.queue, 1, &submits, fence);
  }
  if (result == VK_SUCCESS) result = vkWaitForFences(gpu.device, 1, &fence, VK_TRUE, ~uint64_t{0});
  if (result == VK_SUCCESS) result = vkResetFences(gpu.device, 1, &fence);
  if (result != VK_SUCCESS) return VulkanError(gpu.facts.name, result);
  for (const Copy& copy : copies) {
    if (to_host) std::memcpy(copy.here, staging.host() + copy.region.dstOffset, copy.region.size);
  }
  copies.clear();
  staged = 0;
  return {};
}

}  // namespace braid::vulkan
