// A workgroup per row.
#include "ops/vulkan/sample.h"

#include "ops/vulkan/kernels.h"

namespace braid::ops::gpu {

void RunSample(const OpContext& context, const SampleRowsArgs& args) {
  CHECK(args.logits.cols <= kSampledMax, "a vocabulary of {} tokens", args.logits.cols);
  struct {
    uint64_t logits, draws, results, ids;
    int32_t stride, vocabulary, sampled, told;
  } const a{Address(args.logits.data), Address(args.draws),     Address(args.drawn),
            Address(args.ids),         Int(args.logits.stride), Int(args.logits.cols),
            Int(args.sampled),         Int(args.told)};
  context.recorder->Run(Kernel{"sample", kShaderSample}, a, {args.logits.rows});
  context.recorder->Mark("sample");
}

}  // namespace braid::ops::gpu
