// The kernels compiled for AVX2 with FMA. This file's flags must not reach any inline function that
// other files also instantiate, so it includes nothing but intrinsics and the kernels' own headers.
#include "ops/cpu/kernels/table.h"

#include "ops/cpu/kernels/attend.h"
#include "ops/cpu/kernels/delta.h"
#include "ops/cpu/kernels/gemm.h"
#include "ops/cpu/kernels/rows.h"
#include "ops/cpu/kernels/vec_avx2.h"

namespace braid::cpu {

const KernelTable& Avx2Kernels() {
  using R = Rows<VecAvx2>;
  static constexpr KernelTable kTable = {
      .gemm = Gemm<VecAvx2>::Run,
      .rms_norm = R::RmsNorm,
      .gated_norm = R::GatedNorm,
      .conv = R::Conv,
      .swiglu = R::Swiglu,
      .sigmoid_mul = R::SigmoidMul,
      .add_scaled = R::AddScaled,
      .dot = R::Dot,
      .unit = R::Unit,
      .rotate = R::Rotate,
      .to_bf16 = R::ToBf16,
      .attend = Attend<VecAvx2>::Run,
      .merge = Attend<VecAvx2>::Merge,
      .delta = Delta<VecAvx2>::Run,
      .max = R::Max,
      .sum_exp = R::SumExp,
  };
  return kTable;
}

}  // namespace braid::cpu
