// Products with fp8 panels and fp32 activations on AVX-512.
#include "ops/cpu/kernels/product_fp8.h"
#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::cpu {
namespace {

void Gemm(const GemmTask& task) { Avx512Kernels().gemm(task); }

}  // namespace

void Fp8Avx512(const GemmTask& task) {
  Fp8Product<VecAvx512, VecAvx512, Gemm, kRowBlock, 4>::Run(task);
}

}  // namespace braid::cpu
