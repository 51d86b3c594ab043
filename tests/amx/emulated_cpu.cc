// The linker gives DetectCpu's callers this: where the CPU has what the emulation and the files of
// src/ops/cpu/amx are compiled for, it is said to have tiles too. Elsewhere no test of the program
// would compute anything, so the program ends with the exit code by which CTest skips it.
#include <cstdio>
#include <cstdlib>

#include "tensor/device.h"

using braid::CpuFeatures;

extern "C" CpuFeatures __real__ZN5braid9DetectCpuEv();
extern "C" CpuFeatures __wrap__ZN5braid9DetectCpuEv();

CpuFeatures __wrap__ZN5braid9DetectCpuEv() {
  CpuFeatures features = __real__ZN5braid9DetectCpuEv();
  if (!features.avx512_bf16 || !features.avx512_vnni) {
    std::fputs("skipped: emulated AMX needs BF16 and VNNI of AVX-512\n", stderr);
    std::_Exit(77);
  }
  features.amx_bf16 = features.amx_int8 = true;
  return features;
}
