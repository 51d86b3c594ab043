// The part of the machine that code may use: the instruction set, detected at start and limited by
// a flag, and the arithmetic of matrix products.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/system/topology.h"

namespace braid {

// Ordered: each includes what stands before it. kAmx stands for AMX with bf16 and int8 tiles and
// for AVX-512 with its BF16 and VNNI instructions.
enum class Isa : uint8_t { kBase, kAvx2, kAvx512, kAmx };

std::string_view NameOf(Isa isa);
Result<Isa> ParseIsa(std::string_view name);

// How operands enter matrix products. Accumulation, state, norms and gates are fp32 in both.
enum class Compute : uint8_t {
  kF32,   // activations as they are
  kBF16,  // activations rounded to bf16, row by row
};

struct CpuFeatures {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, DQ, VL
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool avx512_vbmi = false;
  bool avx_vnni = false;
  bool amx_bf16 = false;  // and the kernel lets this process use tiles
  bool amx_int8 = false;
  std::string model_name;
  Topology topology;  // of this process's affinity mask
};

// Asks the kernel to let this process use AMX tiles (arch_prctl, once for all threads, those of
// later included). False where the CPU or the kernel has none: no tile instruction may run then.
bool RequestAmx();

// Reads the model's name and the features that GCC 12's cpuid wrapper lacks (AVX-VNNI, AMX) from
// the text of /proc/cpuinfo, for its first processor.
void ReadCpuinfo(std::istream& cpuinfo, CpuFeatures& features);
// Also requests AMX tiles, so that every reported feature may be used at once.
CpuFeatures DetectCpu();
Isa BestIsa(const CpuFeatures& features);

struct Device {
  Isa isa = Isa::kBase;
  Compute compute = Compute::kF32;
  // Dot products that not every CPU of `isa` has.
  bool avx_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool avx512_vbmi = false;  // permutations of bytes
  bool vulkan = false;       // not the CPU at all: a device of src/vulkan
};

// The device of a CPU on which nothing above `isa` is used.
Device DeviceOf(const CpuFeatures& features, Isa isa, Compute compute);

}  // namespace braid
