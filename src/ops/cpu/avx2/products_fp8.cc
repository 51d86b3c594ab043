// Products with fp8 panels on AVX2.
#include "ops/cpu/kernels/product_fp8.h"
#include "ops/cpu/kernels/vec_avx2.h"

namespace braid::cpu {
namespace {

void Gemm(const GemmTask& task) { Avx2Kernels().gemm(task); }

}  // namespace

void Fp8Avx2(const GemmTask& task) { Fp8Product<VecAvx2, VecAvx2, Gemm, kRowBlock, 4>::Run(task); }

}  // namespace braid::cpu
