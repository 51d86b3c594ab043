// A workgroup per row.
#include "ops/vulkan/sample.h"

#include "ops/vulkan/kernels.h"

namespace braid::ops::gpu {

void RunSample(const OpContext& context, const SampleRowsArgs& args) {
  CHECK(args.logits.cols <= kSampledMax, "a vocabulary of {} tokens", args.logits.cols);
  struct {
    uint64_t logits, draws, results;
    int32_t stride, vocabulary, sampled, unused = 0;
  } const a{Address(args.logits.data), Address(args.draws),   Address(args.drawn),
            Int(args.logits.stride),   Int(args.logits.cols), Int(args.sampled)};
  context.recorder->Run(Kernel{"sample", kShaderSample}, a, {args.logits.rows});
}

}  // namespace braid::ops::gpu
