// Command buffers: one at a time, submitted once and waited for. Where the host takes part there
// are more: those up to a hand-over, which a semaphore counts, and those beside the host's work, in
// one submission.
//
// Commands are first written to a log. Where a command buffer of an earlier step has the same log,
// it is submitted again: steps of decode differ in their inputs alone, which lie in memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "vulkan/gpu_state.h"

namespace braid::vulkan {
namespace {

constexpr uint32_t kTimesMax = 4096;  // in a submission

// What follows sees what was written before.
void Order(VkCommandBuffer buffer) {
  constexpr VkPipelineStageFlags kStages =
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  const VkMemoryBarrier barrier{
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                       VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
  vkCmdPipelineBarrier(buffer, kStages, kStages, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

// In a log, `data_bytes` of arguments or of what is written follow it. No part is padding, because
// logs are compared as bytes.
enum class Kind : uint32_t { kDispatch, kWrite, kCopy, kZero, kBeginTiming, kTime };
struct Command {
  Kind kind = Kind::kDispatch;
  uint32_t groups[3] = {};
  uint32_t data_bytes = 0, beside = 0;  // 1: no barrier before it
  VkPipeline pipeline = nullptr;
  VkBuffer from = nullptr, to = nullptr;
  uint64_t from_at = 0, to_at = 0, bytes = 0;  // kTime: `bytes` is its number
};

void Add(std::vector<std::byte>& log, const Command& command,
         std::span<const std::byte> data = {}) {
  Command sized = command;
  sized.data_bytes = static_cast<uint32_t>(data.size());
  const auto bytes = std::as_bytes(std::span(&sized, 1));
  log.insert(log.end(), bytes.begin(), bytes.end());
  log.insert(log.end(), data.begin(), data.end());
}

void RecordCommand(const GpuState& gpu, VkCommandBuffer buffer, const Command& command,
                   const std::byte* data) {
  if (command.kind == Kind::kBeginTiming) {
    vkCmdResetQueryPool(buffer, gpu.times, 0, kTimesMax);
    vkCmdWriteTimestamp(buffer, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, gpu.times, 0);
    return;
  }
  if (command.kind == Kind::kTime) {
    vkCmdWriteTimestamp(buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, gpu.times,
                        static_cast<uint32_t>(command.bytes));
    return;
  }
  if (command.beside == 0) Order(buffer);
  switch (command.kind) {
    case Kind::kDispatch:
      vkCmdBindPipeline(buffer, VK_PIPELINE_BIND_POINT_COMPUTE, command.pipeline);
      vkCmdPushConstants(buffer, gpu.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, command.data_bytes,
                         data);
      vkCmdDispatch(buffer, command.groups[0], command.groups[1], command.groups[2]);
      break;
    case Kind::kWrite:
      vkCmdUpdateBuffer(buffer, command.to, command.to_at, command.data_bytes, data);
      break;
    case Kind::kCopy: {
      const VkBufferCopy region{command.from_at, command.to_at, command.bytes};
      vkCmdCopyBuffer(buffer, command.from, command.to, 1, &region);
      break;
    }
    default:
      vkCmdFillBuffer(buffer, command.to, command.to_at, command.bytes, 0);
  }
}

struct Logged {
  Command command;
  const std::byte* data = nullptr;
};
// Commands that are beside each other, behind one barrier.
void RecordTogether(const GpuState& gpu, VkCommandBuffer buffer, std::vector<Logged>& together) {
  if (gpu.beside_reversed && together.size() > 1) {
    std::ranges::reverse(together);
    std::swap(together.front().command.beside, together.back().command.beside);
  }
  for (const Logged& one : together) RecordCommand(gpu, buffer, one.command, one.data);
  together.clear();
}

// The log's commands into a command buffer.
VkResult Record(const GpuState& gpu, Recorded& recorded) {
  const VkCommandBuffer buffer = recorded.buffer;
  const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  recorded.log = gpu.log;
  const VkResult result = vkBeginCommandBuffer(buffer, &begin);
  if (result != VK_SUCCESS) return result;
  std::vector<Logged> together;
  for (size_t at = 0; at < recorded.log.size();) {
    Logged next;
    std::memcpy(static_cast<void*>(&next.command), recorded.log.data() + at, sizeof next.command);
    next.data = recorded.log.data() + at + sizeof next.command;
    at += sizeof next.command + next.command.data_bytes;
    if (next.command.beside == 0) RecordTogether(gpu, buffer, together);
    together.push_back(next);
  }
  RecordTogether(gpu, buffer, together);
  // The host reads what it may see of what they wrote.
  const VkMemoryBarrier barrier{
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
  vkCmdPipelineBarrier(buffer,
                       VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                       VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, nullptr, 0, nullptr);
  return vkEndCommandBuffer(buffer);
}

uint32_t TimestampBits(VkPhysicalDevice device) {
  uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  return families[ComputeFamily(device)].timestampValidBits;
}

}  // namespace

// Arguments are addresses, or pairs of 32-bit numbers, which tests keep below 0x5000.
void Recorder::RefuseHostAddresses(const Kernel& kernel,
                                   std::span<const std::byte> arguments) const {
  constexpr uint64_t kHostLeast = uint64_t{0x5000} << 32, kHostEnd = uint64_t{0x8000} << 32;
  for (size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, arguments.data() + at, sizeof word);
    if (word < kHostLeast || word >= kHostEnd) continue;
    auto* const address = reinterpret_cast<std::byte*>(word);
    auto owner = gpu_.allocations.upper_bound(address);
    const bool known = owner != gpu_.allocations.begin() &&
                       address - std::prev(owner)->first < std::prev(owner)->second.bytes;
    CHECK(known, "{}: the argument at byte {} is an address outside device memory", kernel.name,
          at);
  }
}

bool Recorder::Begin() {
  if (!status_.ok()) return false;
  if (gpu_.logging) return true;
  if (!recording_) ++gpu_.step;
  gpu_.logging = true;
  gpu_.log.clear();
  if (timing_ && !recording_) {
    timed_.clear();
    Add(gpu_.log, {.kind = Kind::kBeginTiming});
  }
  recording_ = true;
  return true;
}

bool Recorder::Adds(int64_t Counters::* count) {
  if (count != &Counters::dispatches) after_kernel_ = false;
  if (counted_ == nullptr && !Begin()) return false;
  Counters& counters = counted_ != nullptr ? *counted_ : gpu_.counters;
  ++(counters.*count);
  return counted_ == nullptr;
}

const DeviceFacts& Recorder::facts() const { return gpu_.facts; }

void Recorder::Dispatch(const Kernel& kernel, std::span<const std::byte> arguments, Groups groups,
                        Turn turn) {
  const bool some = groups.x > 0 && groups.y > 0 && groups.z > 0;
  const bool beside = std::exchange(after_kernel_, some) && turn == Turn::kBeside;
  if (!some) return;
  if (beside) ++(counted_ != nullptr ? *counted_ : gpu_.counters).beside;
  if (status_.ok()) status_ = gpu_.Fits(kernel, groups);
  if (!Adds(&Counters::dispatches) || !status_.ok()) return;
  const Result<VkPipeline> pipeline = gpu_.PipelineOf(kernel);
  if (!pipeline) {
    status_ = pipeline.error();
    return;
  }
  if (gpu_.host_addresses_refused) RefuseHostAddresses(kernel, arguments);
  Add(gpu_.log,
      {.kind = Kind::kDispatch,
       .groups = {static_cast<uint32_t>(groups.x), static_cast<uint32_t>(groups.y),
                  static_cast<uint32_t>(groups.z)},
       .beside = beside ? 1u : 0u,
       .pipeline = *pipeline},
      arguments);
}

void Recorder::Write(std::span<const std::byte> from, std::byte* to) {
  if (from.empty() || !Adds(&Counters::writes)) return;
  const auto [buffer, offset] = gpu_.BufferAt(to);
  Add(gpu_.log, {.kind = Kind::kWrite, .to = buffer, .to_at = offset}, from);
}

void Recorder::Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  if (bytes == 0 || !Adds(&Counters::copies)) return;
  const auto [source, source_at] = gpu_.BufferAt(from);
  const auto [target, target_at] = gpu_.BufferAt(to);
  Add(gpu_.log, {.kind = Kind::kCopy,
                 .from = source,
                 .to = target,
                 .from_at = source_at,
                 .to_at = target_at,
                 .bytes = static_cast<uint64_t>(bytes)});
}

void Recorder::Zero(std::byte* to, int64_t bytes) {
  if (bytes == 0 || !Adds(&Counters::copies)) return;
  const auto [buffer, offset] = gpu_.BufferAt(to);
  Add(gpu_.log,
      {.kind = Kind::kZero, .to = buffer, .to_at = offset, .bytes = static_cast<uint64_t>(bytes)});
}

// Ends the commands that are logged, in `commands`.
void Recorder::Close() {
  gpu_.logging = after_kernel_ = false;
  const auto same = std::ranges::find_if(gpu_.recorded, [&](const Recorded& recorded) {
    return recorded.step != gpu_.step && !recorded.log.empty() && recorded.log == gpu_.log;
  });
  Recorded* taken = same == gpu_.recorded.end() ? nullptr : &*same;
  if (taken == nullptr) {
    VkResult result = gpu_.FreeBuffer(taken);
    if (result == VK_SUCCESS) {
      result = Record(gpu_, *taken);
      ++gpu_.counters.recordings;
    }
    if (result != VK_SUCCESS) {
      if (taken != nullptr) taken->log.clear();
      if (status_.ok()) status_ = VulkanError(gpu_.facts.name, result);
      return;
    }
  }
  taken->step = gpu_.step;
  gpu_.commands = taken->buffer;
}

void Recorder::BeginHandOver() {
  if (counted_ != nullptr || !Begin()) return;
  CHECK(gpu_.handed == nullptr, "a hand-over within another");
  Close();
  gpu_.handed = std::exchange(gpu_.commands, nullptr);
}

void Recorder::EndHandOver(HostWork& work) {
  if (counted_ != nullptr) {
    ++counted_->submissions;
    return;
  }
  if (gpu_.logging) Close();
  RunHostWork();
  if (!status_.ok()) return;
  CHECK(gpu_.handed != nullptr, "the end of a hand-over that has not begun");
  Submit(false);
  work_ = &work;
}

// `handed` and what is recorded behind it, each where there is one.
void Recorder::Submit(bool last) {
  const uint64_t count = gpu_.hand_overs + 1;
  const VkTimelineSemaphoreSubmitInfo counted{
      .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
      .signalSemaphoreValueCount = 1,
      .pSignalSemaphoreValues = &count};
  const VkCommandBuffer handed = std::exchange(gpu_.handed, nullptr);
  const VkCommandBuffer commands = std::exchange(gpu_.commands, nullptr);
  std::array<VkSubmitInfo, 2> submits;
  uint32_t submitted = 0;
  if (handed != nullptr) {
    gpu_.hand_overs = count;
    submits[submitted++] = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                            .pNext = &counted,
                            .commandBufferCount = 1,
                            .pCommandBuffers = &handed,
                            .signalSemaphoreCount = 1,
                            .pSignalSemaphores = &gpu_.hand_over};
  }
  if (commands != nullptr) {
    submits[submitted++] = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                            .commandBufferCount = 1,
                            .pCommandBuffers = &commands};
  }
  const VkFence fence = last ? gpu_.fence : nullptr;
  if (submitted_ns_ == 0) submitted_ns_ = timing_ ? MonotonicNs() : 0;
  std::lock_guard lock(gpu_.queue_mutex);
  const VkResult result = vkQueueSubmit(gpu_.queue, submitted, submits.data(), fence);
  ++gpu_.counters.submissions;
  if (result != VK_SUCCESS) status_ = VulkanError(gpu_.facts.name, result);
}

// That of the last hand-over, when the device has come so far.
void Recorder::RunHostWork() {
  HostWork* work = std::exchange(work_, nullptr);
  if (work == nullptr || !status_.ok()) return;
  const uint64_t awaited = gpu_.hand_overs;
  const VkSemaphoreWaitInfo wait{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                 .semaphoreCount = 1,
                                 .pSemaphores = &gpu_.hand_over,
                                 .pValues = &awaited};
  const VkResult result = vkWaitSemaphores(gpu_.device, &wait, ~uint64_t{0});
  ++gpu_.counters.waits;
  if (result != VK_SUCCESS) {
    status_ = VulkanError(gpu_.facts.name, result);
    return;
  }
  work->Run();
}

Status Recorder::Finish() {
  if (counted_ != nullptr) {
    ++counted_->submissions;
    return std::exchange(status_, {});
  }
  if (!recording_) {
    timed_.clear();
    return std::exchange(status_, {});
  }
  CHECK(gpu_.handed == nullptr || !status_.ok(), "a hand-over has no end");
  if (Begin()) Close();
  RunHostWork();
  if (status_.ok()) Submit(true);
  if (status_.ok()) {
    VkResult result = vkWaitForFences(gpu_.device, 1, &gpu_.fence, VK_TRUE, ~uint64_t{0});
    ++gpu_.counters.waits;
    if (result == VK_SUCCESS) result = vkResetFences(gpu_.device, 1, &gpu_.fence);
    if (result != VK_SUCCESS) status_ = VulkanError(gpu_.facts.name, result);
  } else {
    std::lock_guard lock(gpu_.queue_mutex);
    vkQueueWaitIdle(gpu_.queue);  // hand-overs may run that were submitted before the error
  }
  recording_ = gpu_.logging = false;
  gpu_.commands = gpu_.handed = nullptr;
  const int64_t submitted_ns = std::exchange(submitted_ns_, 0);
  if (!status_.ok()) return std::exchange(status_, {});
  return timing_ ? TakeTimes(submitted_ns) : Status();
}

Status Recorder::BeginTiming() {
  CHECK(!recording_);
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(gpu_.physical, &properties);
  const uint32_t bits = TimestampBits(gpu_.physical);
  if (bits == 0) {
    return Error{ErrorCode::kUnavailable, gpu_.facts.name + " has no clock for its commands"};
  }
  gpu_.tick_ns = static_cast<double>(properties.limits.timestampPeriod);
  gpu_.time_mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const VkQueryPoolCreateInfo create{.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                     .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                     .queryCount = kTimesMax};
  if (gpu_.times == nullptr) {
    const VkResult result = vkCreateQueryPool(gpu_.device, &create, nullptr, &gpu_.times);
    if (result != VK_SUCCESS) return VulkanError(gpu_.facts.name, result);
  }
  timing_ = true;
  return {};
}

void Recorder::WriteMark(std::string_view name) {
  const size_t at = timed_.size() + 1;
  if (!recording_ || at >= kTimesMax || !Begin()) return;
  Add(gpu_.log, {.kind = Kind::kTime, .bytes = at});
  timed_.push_back({name});
}

// Each mark's commands begin where those of the mark before end.
Status Recorder::TakeTimes(int64_t submitted_ns) {
  ticks_.resize(timed_.size() + 1);
  const VkResult result = vkGetQueryPoolResults(
      gpu_.device, gpu_.times, 0, static_cast<uint32_t>(ticks_.size()), ticks_.size() * 8,
      ticks_.data(), 8, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
  if (result != VK_SUCCESS) return VulkanError(gpu_.facts.name, result);
  const auto time_of = [&](size_t at) {
    const uint64_t since = (ticks_[at] - ticks_[0]) & gpu_.time_mask;
    return submitted_ns + static_cast<int64_t>(static_cast<double>(since) * gpu_.tick_ns);
  };
  for (size_t i = 0; i < timed_.size(); ++i) {
    timed_[i].start_ns = time_of(i);
    timed_[i].end_ns = time_of(i + 1);
  }
  return {};
}

}  // namespace braid::vulkan
