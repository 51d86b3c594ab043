// GEMM in fp32 on AVX-512, with fp32, bf16 and fp8 weights.
#include "ops/cpu/kernels/dot_float.h"
#include "ops/cpu/kernels/gemm_fp8.h"
#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::ops::cpu {

void F32Avx512(const GemmTask& task) { FloatGemm<VecAvx512>(task); }
void Fp8Avx512(const GemmTask& task) {
  Fp8Gemm<VecAvx512, VecAvx512, F32Avx512, kFloatRows, 4>::Run(task);
}

}  // namespace braid::ops::cpu
