// CPU candidates of ops/experts.h.
#pragma once

#include "ops/experts.h"

namespace braid::ops::cpu {

extern const Impl<ExpertsArgs> kExperts;

}  // namespace braid::ops::cpu
