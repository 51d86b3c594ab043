// The rates that the expected speed of a model on a device is made of, measured before its weights
// are loaded: reading as many bytes as the weights have, up to some hundred MiB, because caches may
// hold fewer.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/system/topology.h"
#include "model/loading/decode_rate.h"
#include "tensor/device.h"
#include "vulkan/gpu.h"

namespace braid {

// What the weights take, and the host's part in them.
struct RatesAsked {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;  // 0: the device has everything
  Device host;             // whose kernels compute the host's part, in so many threads
  int threads = 1;
  ThreadPlaces places;
};

// Half a second or so. An error: the device lacks the memory, or has failed.
Result<DeviceRates> MeasureRates(vulkan::Gpu& gpu, const RatesAsked& asked);

}  // namespace braid
