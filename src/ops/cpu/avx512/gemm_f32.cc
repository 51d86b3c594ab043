// GEMM in fp32 on AVX-512, with fp32, fp16, bf16 and fp8 weights.
#include "ops/cpu/kernels/dot_float.h"
#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::ops::cpu {

GemmKernelList Avx512FloatGemm() {
  const auto& kernels = FloatKernels<VecAvx512, CpuNeed::kAvx512>::kAll;
  return {kernels, sizeof(kernels) / sizeof(GemmKernel)};
}

}  // namespace braid::ops::cpu
