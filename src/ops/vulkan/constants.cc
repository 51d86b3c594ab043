// The memory fills up from its beginning and is never reused.
#include "ops/vulkan/constants.h"

#include <utility>

#include "base/math.h"

namespace braid::ops {

DeviceConstants::DeviceConstants(vulkan::Memory memory) : memory_(std::move(memory)) {}

const float* DeviceConstants::Find(vulkan::Recorder& recorder, std::span<const float> values) {
  std::vector<float> key(values.begin(), values.end());
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  const int64_t bytes = RoundUp(std::ssize(values) * 4, 64);
  if (used_ + bytes > memory_.bytes()) return nullptr;
  std::byte* to = memory_.address() + used_;
  used_ += bytes;
  recorder.Write(std::as_bytes(values), to);
  known_.emplace(std::move(key), reinterpret_cast<const float*>(to));
  return reinterpret_cast<const float*>(to);
}

}  // namespace braid::ops
