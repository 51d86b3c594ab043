// How a model's memory is divided between a device and the host: everything on the device, or the
// experts that routers choose in the host's memory. Pure: sizes come as numbers.
#pragma once

#include "base/result.h"
#include "model/loading/memory_plan.h"
#include "model/spec.h"

namespace braid {

// Who has the experts that a router chooses; kAuto: the device if it has room for them.
enum class ExpertsWith { kAuto, kHost, kDevice };

// With room for a sequence of so many tokens, or of as many as were asked for, everything lies on
// the device.
inline constexpr int32_t kTokensBesideExperts = 4096;

struct DeviceRoom {
  int64_t memory_bytes = 0;       // the device's own
  int64_t buffer_bytes_max = 0;   // of one allocation, which the arena is, and each weight
  bool shared = false;            // its memory is the host's
  int64_t routed_bytes = 0;       // of the weights, those of experts that a router chooses
  int64_t routed_weight_max = 0;  // bytes of the largest of them
  int64_t other_weight_max = 0;   // and of the largest of the others
  ExpertsWith experts = ExpertsWith::kAuto;
};

// The plan of what is on the device: `request.available_bytes` and `weight_bytes` are the host's
// and of all weights, `total_bytes` bounds the device's share. The experts' bytes are
// `host_weight_bytes` where the host has them, and `host_reason` says why. Errors for lack of
// memory have the field "device" and name what is needed and available, with experts on the host
// too.
Result<MemoryPlan> PlanDeviceMemory(const ModelSpec& spec, const MemoryRequest& request,
                                    const DeviceRoom& room);

}  // namespace braid
