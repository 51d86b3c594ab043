// Choice of kernels by device.
#include "ops/cpu/dispatch.h"

namespace braid::ops::cpu {

const KernelTable* KernelsFor(const Device& device) {
  if (device.isa >= Isa::kAvx512) return &Avx512Kernels();
  return device.isa >= Isa::kAvx2 ? &Avx2Kernels() : nullptr;
}

const KernelTable* KernelsFor(const Device& device, int64_t size, int64_t other_size) {
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    if (device.isa < isa) continue;
    const KernelTable* kernels = KernelsFor({isa, device.compute});
    if (size % kernels->lanes == 0 && other_size % kernels->lanes == 0) return kernels;
  }
  return nullptr;
}

const char* NeedsAvx2(const Device& device) {
  return KernelsFor(device) ? nullptr : "needs AVX2 with FMA";
}
const char* NeedsAvx512Bf16(const Device& device) {
  return device.avx512_bf16 ? nullptr : "needs AVX512-BF16";
}
const char* NeedsAmx(const Device& device) {
  return device.isa >= Isa::kAmx ? nullptr : "needs AMX";
}

}  // namespace braid::ops::cpu
