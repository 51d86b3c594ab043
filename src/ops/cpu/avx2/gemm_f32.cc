// GEMM in fp32 on AVX2, with fp32, fp16, bf16 and fp8 weights.
#include "ops/cpu/kernels/dot_float.h"
#include "ops/cpu/kernels/vec_avx2.h"

namespace braid::ops::cpu {

GemmKernelList Avx2FloatGemm() {
  const auto& kernels = FloatKernels<VecAvx2, CpuNeed::kAvx2>::kAll;
  return {kernels, sizeof(kernels) / sizeof(GemmKernel)};
}

}  // namespace braid::ops::cpu
