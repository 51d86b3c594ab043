// CPU candidates of ops/experts.h.
#pragma once

#include "ops/cpu/products.h"
#include "ops/experts.h"

namespace braid::ops::cpu {

std::array<Impl<ExpertsArgs>, kProductCount> ExpertsProducts();

}  // namespace braid::ops::cpu
