// What a device really gives, for `braid doctor`, benches and the expected rate.
#pragma once

#include "base/result.h"
#include "vulkan/gpu.h"

namespace braid::vulkan {

struct DeviceLimits {
  double read_bytes_per_second = 0;       // of its memory, far more than caches hold
  double fp32_operations_per_second = 0;  // a multiply-add is two
};
// What is read by default, and the least that can be; all of it in multiples of the least.
inline constexpr int64_t kReadBytes = int64_t{256} << 20, kReadBytesLeast = int64_t{32} << 20;

// The best of some repetitions, each with the time to submit it. Under a second each.
Result<DeviceLimits> MeasureDevice(Gpu& gpu, int64_t read_bytes = kReadBytes);
// The first of them, as it is just now.
Result<double> MeasureReading(Gpu& gpu, int64_t bytes = kReadBytes);
// Seconds of a submission that does next to nothing, with the wait for its end: the median of some.
Result<double> MeasureSubmission(Gpu& gpu);

}  // namespace braid::vulkan
