// The sequences of a step as kernels see them: what SequenceIndex is on the host. The host writes
// it before the step and tells ops where it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/sequence.h"

namespace braid::ops {

// In device memory; batch.glsl mirrors both.
struct DeviceSpan {
  int32_t token_begin = 0, token_count = 0, start = 0, slot = 0;
};
struct DeviceBatchTable {
  uint64_t spans = 0;    // DeviceSpan[count]
  uint64_t span_of = 0;  // int32 [tokens]
  uint64_t tables = 0;   // addresses of blocks [slot][group][entries], 0 for holes
  int32_t groups = 0, entries = 0;
};

class DeviceConstants;  // ops/vulkan/constants.h

// Of a step that is being recorded.
struct DeviceBatch {
  const std::byte* table = nullptr;      // a DeviceBatchTable on the device
  const SequenceSpan* spans = nullptr;   // the step's, on the host: says which of them an op has
  DeviceConstants* constants = nullptr;  // may be null: every step brings its own
};

}  // namespace braid::ops
