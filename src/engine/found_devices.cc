// A device that cannot be opened or measured is listed with the reason.
#include "engine/found_devices.h"

#include <utility>

namespace braid {

FoundDevices FindDevices() {
  FoundDevices devices;
  auto listed = vulkan::ListDevices();
  if (!listed) {
    devices.why_none = listed.error().message;
    return devices;
  }
  for (vulkan::DeviceFacts& facts : *listed) {
    FoundDevice found{.facts = std::move(facts)};
    if (found.facts.missing.empty()) {
      auto gpu = vulkan::Gpu::Open(found.facts.index);
      auto limits = gpu ? vulkan::MeasureDevice(**gpu) : gpu.error();
      if (limits) {
        found.limits = *limits;
      } else {
        found.facts.missing = limits.error().message;
      }
    }
    devices.found.push_back(std::move(found));
  }
  return devices;
}

}  // namespace braid
