// The linker gives DetectCpu's callers this: where the CPU has what the emulation and the files of
// src/ops/cpu/amx are compiled for, it is said to have tiles too.
#include "tensor/device.h"

using braid::CpuFeatures;

extern "C" CpuFeatures __real__ZN5braid9DetectCpuEv();
extern "C" CpuFeatures __wrap__ZN5braid9DetectCpuEv();

CpuFeatures __wrap__ZN5braid9DetectCpuEv() {
  CpuFeatures features = __real__ZN5braid9DetectCpuEv();
  if (features.avx512_bf16 && features.avx512_vnni) features.amx_bf16 = features.amx_int8 = true;
  return features;
}
