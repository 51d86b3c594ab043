// The references: what each op means, in plain loops and double accumulators. They accept
// everything, use the same pages and layouts as the fast candidates, and stay unoptimised.
#pragma once

#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/latent.h"
#include "ops/linear.h"
#include "ops/linear_attention.h"
#include "ops/norm.h"
#include "ops/rotary.h"

namespace braid::ops::reference {

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
extern const Impl<ExpandLatentArgs> kExpandLatent;
extern const Impl<ConvArgs> kCausalConv;
extern const Impl<LinearAttentionArgs> kLinearAttention;
extern const Impl<RouteArgs> kRoute;
extern const Impl<ScalarGateArgs> kScalarGate;
extern const Impl<ExpertsArgs> kExperts;
extern const Impl<AddRowsArgs> kAddRows;

// Candidates that accept everything.
template <class Args>
const char* Accepts(const Device&, const Args&) {
  return nullptr;
}

double Sigmoid(double x);
double Silu(double x);
// silu(gate) * up, clamped when limit > 0 (ops/linear.h)
double GatedUnit(double gate, double up, double limit);

}  // namespace braid::ops::reference
