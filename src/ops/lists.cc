// Every op with its candidates, best first. A new candidate is one name in one list.
#include "ops/cpu/attention.h"
#include "ops/cpu/experts.h"
#include "ops/cpu/gemm/linear.h"
#include "ops/cpu/latent.h"
#include "ops/cpu/linear_attention.h"
#include "ops/cpu/route.h"
#include "ops/reference/reference.h"
#include "ops/vulkan/candidates.h"
#include "ops/vulkan/handed_experts.h"

namespace braid::ops {

void Embed(const OpContext& context, const EmbedArgs& args) {
  static const Impl<EmbedArgs> kList[] = {gpu::kEmbed, cpu::kEmbed, reference::kEmbed};
  Dispatch("embed", kList, context, args);
}

void RmsNorm(const OpContext& context, const RmsNormArgs& args) {
  static const Impl<RmsNormArgs> kList[] = {gpu::kRmsNorm, cpu::kRmsNorm, reference::kRmsNorm};
  Dispatch("rms_norm", kList, context, args);
}

void GatedNorm(const OpContext& context, const GatedNormArgs& args) {
  static const Impl<GatedNormArgs> kList[] = {gpu::kGatedNorm, cpu::kGatedNorm,
                                              reference::kGatedNorm};
  Dispatch("gated_norm", kList, context, args);
}

void Linear(const OpContext& context, const LinearArgs& args) {
  static const Impl<LinearArgs> kList[] = {gpu::kLinear, cpu::kLinear, reference::kLinear};
  Dispatch("linear", kList, context, args);
}

void Swiglu(const OpContext& context, const SwigluArgs& args) {
  static const Impl<SwigluArgs> kList[] = {gpu::kSwiglu, cpu::kSwiglu, reference::kSwiglu};
  Dispatch("swiglu", kList, context, args);
}

void NormRopeWriteKv(const OpContext& context, const WriteKvArgs& args) {
  static const Impl<WriteKvArgs> kList[] = {gpu::kNormRopeWriteKv, cpu::kNormRopeWriteKv,
                                            reference::kNormRopeWriteKv};
  Dispatch("write_kv", kList, context, args);
}

void Attention(const OpContext& context, const AttentionArgs& args) {
  static const Impl<AttentionArgs> kList[] = {gpu::kAttention, cpu::kAttentionAmx,
                                              cpu::kAttentionBf16, cpu::kAttention,
                                              reference::kAttention};
  Dispatch("attention", kList, context, args);
}

void HeadNormRotate(const OpContext& context, const HeadNormRotateArgs& args) {
  static const Impl<HeadNormRotateArgs> kList[] = {gpu::kHeadNormRotate, cpu::kHeadNormRotate,
                                                   reference::kHeadNormRotate};
  Dispatch("head_norm_rotate", kList, context, args);
}

void WriteLatent(const OpContext& context, const WriteLatentArgs& args) {
  static const Impl<WriteLatentArgs> kList[] = {gpu::kWriteLatent, cpu::kWriteLatent,
                                                reference::kWriteLatent};
  Dispatch("write_latent", kList, context, args);
}

void HeadLinear(const OpContext& context, const HeadLinearArgs& args) {
  static const Impl<HeadLinearArgs> kList[] = {gpu::kHeadLinear, cpu::kHeadLinear,
                                               reference::kHeadLinear};
  Dispatch("head_linear", kList, context, args);
}

void ExpandLatent(const OpContext& context, const ExpandLatentArgs& args) {
  static const Impl<ExpandLatentArgs> kList[] = {cpu::kExpandLatent, reference::kExpandLatent};
  Dispatch("expand_latent", kList, context, args);
}

void CausalConv(const OpContext& context, const ConvArgs& args) {
  static const Impl<ConvArgs> kList[] = {gpu::kCausalConv, cpu::kCausalConv,
                                         reference::kCausalConv};
  Dispatch("conv", kList, context, args);
}

void LinearAttentionStep(const OpContext& context, const LinearAttentionArgs& args) {
  static const Impl<LinearAttentionArgs> kList[] = {
      gpu::kLinearAttention, cpu::kLinearAttentionAmx, cpu::kLinearAttentionBf16,
      cpu::kLinearAttention, reference::kLinearAttention};
  Dispatch("linear_attention", kList, context, args);
}

void Route(const OpContext& context, const RouteArgs& args) {
  const bool plain = args.bias == nullptr && args.rule.groups == 1;
  CHECK(plain || args.rule.score == RouterScore::kSigmoid, "bias and groups go with sigmoid");
  static const Impl<RouteArgs> kList[] = {gpu::kRoute, cpu::kRoute, reference::kRoute};
  Dispatch("route", kList, context, args);
}

void ScalarGate(const OpContext& context, const ScalarGateArgs& args) {
  static const Impl<ScalarGateArgs> kList[] = {gpu::kScalarGate, cpu::kScalarGate,
                                               reference::kScalarGate};
  Dispatch("scalar_gate", kList, context, args);
}

void AddRows(const OpContext& context, const AddRowsArgs& args) {
  static const Impl<AddRowsArgs> kList[] = {gpu::kAddRows, cpu::kAddRows, reference::kAddRows};
  Dispatch("add_rows", kList, context, args);
}

void Experts(const OpContext& context, const ExpertsArgs& args) {
  if (context.handed != nullptr) return gpu::HandOverExperts(context, args);
  static const Impl<ExpertsArgs> kList[] = {gpu::kExperts, cpu::kExperts, reference::kExperts};
  Dispatch("experts", kList, context, args);
}

}  // namespace braid::ops
