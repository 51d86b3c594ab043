// Choice of kernels by device.
#include "ops/cpu/dispatch.h"

namespace braid::ops::cpu {

const braid::cpu::KernelTable* KernelsFor(const Device& device) {
  return device.isa >= Isa::kAvx2 ? &braid::cpu::Avx2Kernels() : nullptr;
}

const char* NeedsAvx2(const Device& device) {
  return KernelsFor(device) ? nullptr : "needs AVX2 with FMA";
}

}  // namespace braid::ops::cpu
