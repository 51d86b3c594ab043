// The names of the formats of weights in memory. Kernels may include no other header of ops;
// everybody else includes ops/weight_format.h, which says what each format means.
#pragma once

#include <cstdint>

namespace braid::ops {

enum class WeightFormat : uint8_t { kF32, kBF16, kF8, kI8, kQ8_0, kI4 };

}  // namespace braid::ops
