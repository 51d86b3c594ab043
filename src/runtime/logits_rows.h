// How many rows of logits are in memory at once, on every device.
#pragma once

#include <cstdint>

namespace braid {

inline constexpr int32_t kLogitsRows = 64;

}  // namespace braid
