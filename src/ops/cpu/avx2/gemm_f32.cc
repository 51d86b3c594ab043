// GEMM in fp32 on AVX2, with fp32, bf16 and fp8 weights.
#include "ops/cpu/kernels/dot_float.h"
#include "ops/cpu/kernels/gemm_fp8.h"
#include "ops/cpu/kernels/vec_avx2.h"

namespace braid::ops::cpu {

void F32Avx2(const GemmTask& task) { FloatGemm<VecAvx2>(task); }
void Fp8Avx2(const GemmTask& task) { Fp8Gemm<VecAvx2, VecAvx2, F32Avx2, kFloatRows, 4>::Run(task); }

}  // namespace braid::ops::cpu
