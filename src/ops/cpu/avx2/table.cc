// The kernels compiled for AVX2 with FMA. This file's flags must not reach any inline function that
// other files also instantiate, so it includes nothing but intrinsics and the kernels' own headers.
#include "ops/cpu/kernels/all.h"
#include "ops/cpu/kernels/vec_avx2.h"

namespace braid::ops::cpu {

const KernelTable& Avx2Kernels() {
  static constexpr KernelTable kTable = KernelsOf<VecAvx2>();
  return kTable;
}

}  // namespace braid::ops::cpu
