// The best-first list of every op, and the functions that dispatch through them. A new candidate is
// one name in one list.
#include "ops/lists.h"

#include <algorithm>
#include <array>

#include "ops/cpu/attention.h"
#include "ops/cpu/experts.h"
#include "ops/cpu/gemm/linear.h"
#include "ops/cpu/latent.h"
#include "ops/cpu/linear_attention.h"
#include "ops/cpu/route.h"
#include "ops/reference/reference.h"

namespace braid::ops {
namespace {

template <class Args, size_t N>
std::array<Impl<Args>, N + 1> Followed(const std::array<Impl<Args>, N>& candidates,
                                       const Impl<Args>& last) {
  std::array<Impl<Args>, N + 1> all;
  std::copy(candidates.begin(), candidates.end(), all.begin());
  all[N] = last;
  return all;
}

}  // namespace

std::span<const Impl<EmbedArgs>> EmbedList() {
  static const Impl<EmbedArgs> kList[] = {cpu::kEmbed, reference::kEmbed};
  return kList;
}
void Embed(const OpContext& context, const EmbedArgs& args) {
  Dispatch("embed", EmbedList(), context, args);
}

std::span<const Impl<RmsNormArgs>> RmsNormList() {
  static const Impl<RmsNormArgs> kList[] = {cpu::kRmsNorm, reference::kRmsNorm};
  return kList;
}
void RmsNorm(const OpContext& context, const RmsNormArgs& args) {
  Dispatch("rms_norm", RmsNormList(), context, args);
}

std::span<const Impl<GatedNormArgs>> GatedNormList() {
  static const Impl<GatedNormArgs> kList[] = {cpu::kGatedNorm, reference::kGatedNorm};
  return kList;
}
void GatedNorm(const OpContext& context, const GatedNormArgs& args) {
  Dispatch("gated_norm", GatedNormList(), context, args);
}

std::span<const Impl<LinearArgs>> LinearList() {
  static const auto kList = Followed(cpu::LinearCandidates(), reference::kLinear);
  return kList;
}
void Linear(const OpContext& context, const LinearArgs& args) {
  Dispatch("linear", LinearList(), context, args);
}

std::span<const Impl<SwigluArgs>> SwigluList() {
  static const Impl<SwigluArgs> kList[] = {cpu::kSwiglu, reference::kSwiglu};
  return kList;
}
void Swiglu(const OpContext& context, const SwigluArgs& args) {
  Dispatch("swiglu", SwigluList(), context, args);
}

std::span<const Impl<WriteKvArgs>> WriteKvList() {
  static const Impl<WriteKvArgs> kList[] = {cpu::kNormRopeWriteKv, reference::kNormRopeWriteKv};
  return kList;
}
void NormRopeWriteKv(const OpContext& context, const WriteKvArgs& args) {
  Dispatch("write_kv", WriteKvList(), context, args);
}

std::span<const Impl<AttentionArgs>> AttentionList() {
  static const Impl<AttentionArgs> kList[] = {cpu::kAttentionAmx, cpu::kAttentionBf16,
                                              cpu::kAttention, reference::kAttention};
  return kList;
}
void Attention(const OpContext& context, const AttentionArgs& args) {
  Dispatch("attention", AttentionList(), context, args);
}

std::span<const Impl<HeadNormRotateArgs>> HeadNormRotateList() {
  static const Impl<HeadNormRotateArgs> kList[] = {cpu::kHeadNormRotate,
                                                   reference::kHeadNormRotate};
  return kList;
}
void HeadNormRotate(const OpContext& context, const HeadNormRotateArgs& args) {
  Dispatch("head_norm_rotate", HeadNormRotateList(), context, args);
}

std::span<const Impl<WriteLatentArgs>> WriteLatentList() {
  static const Impl<WriteLatentArgs> kList[] = {cpu::kWriteLatent, reference::kWriteLatent};
  return kList;
}
void WriteLatent(const OpContext& context, const WriteLatentArgs& args) {
  Dispatch("write_latent", WriteLatentList(), context, args);
}

std::span<const Impl<HeadLinearArgs>> HeadLinearList() {
  static const Impl<HeadLinearArgs> kList[] = {cpu::kHeadLinear, reference::kHeadLinear};
  return kList;
}
void HeadLinear(const OpContext& context, const HeadLinearArgs& args) {
  Dispatch("head_linear", HeadLinearList(), context, args);
}

std::span<const Impl<ExpandLatentArgs>> ExpandLatentList() {
  static const Impl<ExpandLatentArgs> kList[] = {cpu::kExpandLatent, reference::kExpandLatent};
  return kList;
}
void ExpandLatent(const OpContext& context, const ExpandLatentArgs& args) {
  Dispatch("expand_latent", ExpandLatentList(), context, args);
}

std::span<const Impl<ConvArgs>> ConvList() {
  static const Impl<ConvArgs> kList[] = {cpu::kCausalConv, reference::kCausalConv};
  return kList;
}
void CausalConv(const OpContext& context, const ConvArgs& args) {
  Dispatch("conv", ConvList(), context, args);
}

std::span<const Impl<LinearAttentionArgs>> LinearAttentionList() {
  static const Impl<LinearAttentionArgs> kList[] = {
      cpu::kLinearAttentionAmx, cpu::kLinearAttentionBf16, cpu::kLinearAttention,
      reference::kLinearAttention};
  return kList;
}
void LinearAttentionStep(const OpContext& context, const LinearAttentionArgs& args) {
  Dispatch("linear_attention", LinearAttentionList(), context, args);
}

std::span<const Impl<RouteArgs>> RouteList() {
  static const Impl<RouteArgs> kList[] = {cpu::kRoute, reference::kRoute};
  return kList;
}
void Route(const OpContext& context, const RouteArgs& args) {
  const bool plain = args.bias == nullptr && args.rule.groups == 1;
  CHECK(plain || args.rule.score == RouterScore::kSigmoid, "bias and groups go with sigmoid");
  Dispatch("route", RouteList(), context, args);
}

std::span<const Impl<ScalarGateArgs>> ScalarGateList() {
  static const Impl<ScalarGateArgs> kList[] = {cpu::kScalarGate, reference::kScalarGate};
  return kList;
}
void ScalarGate(const OpContext& context, const ScalarGateArgs& args) {
  Dispatch("scalar_gate", ScalarGateList(), context, args);
}

std::span<const Impl<ExpertsArgs>> ExpertsList() {
  static const auto kList = Followed(cpu::ExpertsCandidates(), reference::kExperts);
  return kList;
}
void Experts(const OpContext& context, const ExpertsArgs& args) {
  Dispatch("experts", ExpertsList(), context, args);
}

}  // namespace braid::ops
