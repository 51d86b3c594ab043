// What a device really gives, for `braid doctor`.
#pragma once

#include "base/result.h"
#include "vulkan/gpu.h"

namespace braid::vulkan {

struct DeviceLimits {
  double read_bytes_per_second = 0;       // of its memory, far more than caches hold
  double fp32_operations_per_second = 0;  // a multiply-add is two
};
// The best of some repetitions, each with the time to submit it. Under a second each.
Result<DeviceLimits> MeasureDevice(Gpu& gpu);
// The first of them, as it is just now.
Result<double> MeasureReading(Gpu& gpu);

}  // namespace braid::vulkan
