// The kernels compiled for AVX-512 (F, BW, DQ, VL). Like all files with flags of their own it
// includes nothing but intrinsics and the kernels' own headers.
#include "ops/cpu/kernels/all.h"
#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::ops::cpu {

const KernelTable& Avx512Kernels() {
  static constexpr KernelTable kTable = KernelsOf<VecAvx512>();
  return kTable;
}

}  // namespace braid::ops::cpu
