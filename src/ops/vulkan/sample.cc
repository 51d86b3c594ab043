// A workgroup per row.
#include "ops/vulkan/sample.h"

#include <algorithm>
#include <bit>

#include "ops/vulkan/kernels.h"

namespace braid::ops::gpu {

namespace {

// A step has few rows, so each should keep many loads in flight. A software device runs the
// invocations one after another, and gains nothing from more.
int32_t InvocationsOn(const vulkan::DeviceFacts& facts) {
  if (facts.kind == "software") return 128;
  const auto most = static_cast<uint32_t>(std::clamp(facts.invocations_max, 128, 512));
  return static_cast<int32_t>(std::bit_floor(most));
}

}  // namespace

void RunSample(const OpContext& context, const SampleRowsArgs& args) {
  CHECK(args.logits.cols <= kSampledMax, "a vocabulary of {} tokens", args.logits.cols);
  struct {
    uint64_t logits, draws, results, ids;
    int32_t stride, vocabulary, sampled, told;
  } const a{Address(args.logits.data), Address(args.draws),     Address(args.drawn),
            Address(args.ids),         Int(args.logits.stride), Int(args.logits.cols),
            Int(args.sampled),         Int(args.told)};
  const int32_t invocations =
      args.invocations > 0 ? args.invocations : InvocationsOn(context.recorder->facts());
  const Kernel kernel{"sample", kShaderSample, {static_cast<uint32_t>(invocations)}};
  context.recorder->Run(kernel, a, {args.logits.rows});
  context.recorder->Mark("sample");
}

}  // namespace braid::ops::gpu
