// The devices of this machine beside its CPU, measured.
#pragma once

#include <string>
#include <vector>

#include "vulkan/measure.h"

namespace braid {

struct FoundDevice {
  vulkan::DeviceFacts facts;  // `missing` says why it cannot be used
  vulkan::DeviceLimits limits;
};
struct FoundDevices {
  std::vector<FoundDevice> found;
  std::string why_none;
};
// Opens and measures each. Some seconds where they are slow.
FoundDevices FindDevices();

}  // namespace braid
