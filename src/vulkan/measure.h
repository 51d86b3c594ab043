// What a device really gives, for `braid doctor`, benches and the expected rate.
#pragma once

#include "base/result.h"
#include "vulkan/gpu.h"

namespace braid::vulkan {

struct DeviceLimits {
  double read_bytes_per_second = 0;       // of its memory, far more than caches hold
  double fp32_operations_per_second = 0;  // a multiply-add is two
  // Of a kernel that does next to nothing, behind one whose numbers it reads: its start and the
  // barrier before it. No kernel of a step takes less.
  double start_seconds = 0;
};
// What is read by default, and the least that can be; all of it in multiples of the least.
inline constexpr int64_t kReadBytes = int64_t{256} << 20, kReadBytesLeast = int64_t{32} << 20;

// The best of some repetitions, each with the time to submit it. Under a second each.
Result<DeviceLimits> MeasureDevice(Gpu& gpu, int64_t read_bytes = kReadBytes);
// The first of them, as it is just now.
Result<double> MeasureReading(Gpu& gpu, int64_t bytes = kReadBytes);
// The last of them.
Result<double> MeasureStart(Gpu& gpu);
// Seconds of a submission that does next to nothing, with the wait for its end: the median of some.
Result<double> MeasureSubmission(Gpu& gpu);

}  // namespace braid::vulkan
