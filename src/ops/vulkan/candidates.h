// The candidates that record into a Vulkan device's commands.
#pragma once

#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/latent.h"
#include "ops/linear.h"
#include "ops/linear_attention.h"
#include "ops/norm.h"
#include "ops/rotary.h"

namespace braid::ops::gpu {

extern const Impl<EmbedArgs> kEmbed;
extern const Impl<RmsNormArgs> kRmsNorm;
extern const Impl<GatedNormArgs> kGatedNorm;
extern const Impl<LinearArgs> kLinear;
extern const Impl<SwigluArgs> kSwiglu;
extern const Impl<WriteKvArgs> kNormRopeWriteKv;
extern const Impl<AttentionArgs> kAttention;
extern const Impl<HeadNormRotateArgs> kHeadNormRotate;
extern const Impl<WriteLatentArgs> kWriteLatent;
extern const Impl<HeadLinearArgs> kHeadLinear;
extern const Impl<ConvArgs> kCausalConv;
extern const Impl<LinearAttentionArgs> kLinearAttention;
extern const Impl<RouteArgs> kRoute;
extern const Impl<ScalarGateArgs> kScalarGate;
extern const Impl<AddRowsArgs> kAddRows;
extern const Impl<ExpertsArgs> kExperts;

}  // namespace braid::ops::gpu
