// Small tables that a model's ops need in every step and the host computes. A device gets each once
// and keeps it, so that a step brings it nothing but what is new.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ops/op.h"
#include "ops/vulkan/batch.h"

namespace braid::ops {

class DeviceConstants {
 public:
  // In so many bytes of device memory.
  explicit DeviceConstants(vulkan::Memory memory);

  // Where the device has these values, which the recorder's commands write the first time; null
  // where no room is left.
  const float* Find(vulkan::Recorder& recorder, std::span<const float> values);
  int64_t bytes_written() const { return used_; }

 private:
  vulkan::Memory memory_;
  int64_t used_ = 0;
  std::map<std::vector<float>, const float*> known_;
};

// As Constants (ops/op.h), of values that are the same in every step.
template <class Fill>
const float* KeptConstants(const OpContext& context, int64_t count, const Fill& fill) {
  if (context.batch != nullptr && context.batch->constants != nullptr) {
    std::vector<float> values(static_cast<size_t>(count));
    fill(values.data());
    const float* found = context.batch->constants->Find(*context.recorder, values);
    if (found != nullptr) return found;
  }
  return Constants(context, count, fill);
}

}  // namespace braid::ops
