// See the header.
#include "runtime/device/device_rates.h"

#include <algorithm>

#include "base/math.h"
#include "base/system/thread_pool.h"
#include "ops/cpu/memory_meter.h"
#include "vulkan/measure.h"

namespace braid {

Result<DeviceRates> MeasureRates(vulkan::Gpu& gpu, const RatesAsked& asked) {
  const int64_t bytes = std::clamp(RoundUp(asked.device_bytes, vulkan::kReadBytesLeast),
                                   vulkan::kReadBytesLeast, vulkan::kReadBytes);
  ASSIGN_OR_RETURN(const vulkan::DeviceLimits limits, vulkan::MeasureDevice(gpu, bytes));
  DeviceRates rates{.bytes_per_second = limits.read_bytes_per_second,
                    .operations_per_second = limits.fp32_operations_per_second,
                    .start_seconds = limits.start_seconds};
  ASSIGN_OR_RETURN(rates.submission_seconds, vulkan::MeasureSubmission(gpu));
  if (asked.host_bytes == 0) return rates;
  using ops::cpu::MemoryMeter;
  const int64_t host_bytes =
      std::min(RoundUp(asked.host_bytes, MemoryMeter::kTaskBytes), MemoryMeter::kBytes);
  ThreadPool pool(asked.threads, asked.places);
  rates.host_bytes_per_second = MemoryMeter(asked.host.isa, pool, host_bytes).Read(0.2);
  return rates;
}

}  // namespace braid
