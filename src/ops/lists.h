// The best-first lists, for those who walk them: op tests, op benches, --explain-ops.
#pragma once

#include <span>

#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/latent.h"
#include "ops/linear.h"
#include "ops/linear_attention.h"
#include "ops/norm.h"
#include "ops/rotary.h"

namespace braid::ops {

std::span<const Impl<EmbedArgs>> EmbedList();
std::span<const Impl<RmsNormArgs>> RmsNormList();
std::span<const Impl<GatedNormArgs>> GatedNormList();
std::span<const Impl<LinearArgs>> LinearList();
std::span<const Impl<SwigluArgs>> SwigluList();
std::span<const Impl<WriteKvArgs>> WriteKvList();
std::span<const Impl<AttentionArgs>> AttentionList();
std::span<const Impl<HeadNormRotateArgs>> HeadNormRotateList();
std::span<const Impl<WriteLatentArgs>> WriteLatentList();
std::span<const Impl<HeadLinearArgs>> HeadLinearList();
std::span<const Impl<ExpandLatentArgs>> ExpandLatentList();
std::span<const Impl<ConvArgs>> ConvList();
std::span<const Impl<LinearAttentionArgs>> LinearAttentionList();
std::span<const Impl<RouteArgs>> RouteList();
std::span<const Impl<ScalarGateArgs>> ScalarGateList();
std::span<const Impl<ExpertsArgs>> ExpertsList();

}  // namespace braid::ops
