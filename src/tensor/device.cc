// CPU detection: cpuid through the compiler's builtins, the rest from /proc.
#include "tensor/device.h"

#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace braid {
namespace {

constexpr std::string_view kIsaNames[] = {"base", "avx2", "avx512", "amx"};

}  // namespace

std::string_view NameOf(Isa isa) { return kIsaNames[static_cast<int>(isa)]; }

Result<Isa> ParseIsa(std::string_view name) {
  for (int i = 0; i < 4; ++i) {
    if (kIsaNames[i] == name) return static_cast<Isa>(i);
  }
  return Error{ErrorCode::kInvalid,
               fmt::format("unknown ISA \"{}\": one of base, avx2, avx512, amx", name)};
}

void ReadCpuinfo(std::istream& cpuinfo, CpuFeatures& features) {
  std::string line;
  while (std::getline(cpuinfo, line)) {
    size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    const std::string value = " " + line.substr(colon + 2) + " ";
    if (line.starts_with("model name")) features.model_name = line.substr(colon + 2);
    if (!line.starts_with("flags")) continue;
    features.avx_vnni = value.find(" avx_vnni ") != std::string::npos;
    features.amx_bf16 = value.find(" amx_bf16 ") != std::string::npos;
    features.amx_int8 = value.find(" amx_int8 ") != std::string::npos;
    return;
  }
}

bool RequestAmx() {
  // From the kernel's asm/prctl.h, which older distributions lack: the state component of tiles.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures DetectCpu() {
  CpuFeatures features;
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
  features.avx512_vbmi = features.avx512 && __builtin_cpu_supports("avx512vbmi");
  features.avx512_vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
  std::ifstream cpuinfo("/proc/cpuinfo");
  ReadCpuinfo(cpuinfo, features);
  if (features.amx_bf16 || features.amx_int8) {
    const bool permitted = RequestAmx();
    features.amx_bf16 = features.amx_bf16 && permitted;
    features.amx_int8 = features.amx_int8 && permitted;
  }
  features.topology = ReadTopology(AffinityMask());
  return features;
}

Isa BestIsa(const CpuFeatures& features) {
  const bool amx = features.amx_bf16 && features.amx_int8;
  if (amx && features.avx512_bf16 && features.avx512_vnni) return Isa::kAmx;
  if (features.avx512) return Isa::kAvx512;
  return features.avx2 ? Isa::kAvx2 : Isa::kBase;
}

Device DeviceOf(const CpuFeatures& features, Isa isa, Compute compute) {
  const bool avx512 = isa >= Isa::kAvx512;
  return {.isa = isa,
          .compute = compute,
          .avx_vnni = isa >= Isa::kAvx2 && features.avx_vnni,
          .avx512_bf16 = avx512 && features.avx512_bf16,
          .avx512_vnni = avx512 && features.avx512_vnni,
          .avx512_vbmi = avx512 && features.avx512_vbmi};
}

}  // namespace braid
