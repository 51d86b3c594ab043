// CPU candidates of ops/latent.h and ops/rotary.h.
#pragma once

#include "ops/latent.h"
#include "ops/rotary.h"

namespace braid::ops::cpu {

extern const Impl<HeadNormRotateArgs> kHeadNormRotate;
extern const Impl<WriteLatentArgs> kWriteLatent;
extern const Impl<HeadLinearArgs> kHeadLinear;
extern const Impl<ExpandLatentArgs> kExpandLatent;

}  // namespace braid::ops::cpu
