// CPU candidates of ops/linear.h, ops/embed.h and ops/norm.h.
#pragma once

#include "ops/cpu/gemm/gemm.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace braid::ops::cpu {

extern const Impl<LinearArgs> kLinear;
extern const Impl<SwigluArgs> kSwiglu;
extern const Impl<RmsNormArgs> kRmsNorm;
extern const Impl<GatedNormArgs> kGatedNorm;

}  // namespace braid::ops::cpu
