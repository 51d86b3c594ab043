// Whether numbers are numbers: what loading and converting refuse.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace braid {

// False if one of `count` elements is NaN or infinite. Of types that have no such numbers: true.
bool AllFinite(const std::byte* numbers, int64_t count, DType dtype);

}  // namespace braid
