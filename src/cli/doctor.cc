// `braid doctor`: describes and measures the machine and suggests settings.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "base/json.h"
#include "base/quantities.h"
#include "base/system/control_groups.h"
#include "cli/bench/machine_limits.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "engine/engine_options.h"
#include "engine/found_devices.h"

namespace braid {
namespace {

struct Findings {
  Machine machine;
  int64_t memory_total = 0;
  int64_t memory_available = 0;
  std::string huge_pages;  // "always", "madvise", "never", or empty
  MachineLimits limits;
  FoundDevices devices;
  std::vector<std::string> advice;
};

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The word in brackets of "always [madvise] never".
std::string Chosen(const std::string& line) {
  const size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close < open ? "" : line.substr(open + 1, close - open - 1);
}

std::string FeatureList(const CpuFeatures& cpu) {
  std::vector<std::string_view> names;
  if (cpu.avx2) names.push_back("AVX2");
  if (cpu.avx512) names.push_back("AVX-512");
  if (cpu.avx512_bf16) names.push_back("AVX512-BF16");
  if (cpu.avx512_vbmi) names.push_back("AVX512-VBMI");
  if (cpu.avx512_vnni) names.push_back("AVX512-VNNI");
  if (cpu.avx_vnni) names.push_back("AVX-VNNI");
  if (cpu.amx_bf16) names.push_back("AMX-BF16");
  if (cpu.amx_int8) names.push_back("AMX-INT8");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

void Advise(Findings& f) {
  const CpuFeatures& cpu = f.machine.cpu;
  if (!cpu.avx2) f.advice.push_back("this CPU has no AVX2: only the plain, slow kernels run here");
  if (f.huge_pages == "never") {
    f.advice.push_back(
        "transparent huge pages are off: echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled saves misses of the TLB");
  }
  if (f.memory_available < f.memory_total / 4) {
    f.advice.push_back(fmt::format("only {} of {} are free: large models will not fit",
                                   ByteText(f.memory_available), ByteText(f.memory_total)));
  }
  const Topology& topology = cpu.topology;
  const auto cores = static_cast<int>(topology.cores.size());
  if (topology.logical_cpus > cores) {
    f.advice.push_back(
        fmt::format("{} logical on {} physical cores: --threads {} (the default) is usually best",
                    topology.logical_cpus, cores, topology.DefaultThreads()));
  }
  if (topology.DefaultThreads() < cores) {
    f.advice.push_back(
        fmt::format("the control group grants {:.2f} CPUs: {} threads by default, not {}; more "
                    "would be stopped in turn while the others wait",
                    topology.quota_cpus, topology.DefaultThreads(), cores));
  }
  if (topology.nodes > 1) {
    f.advice.push_back(
        fmt::format("{} NUMA nodes: with all their cores (the default --threads) weights are split "
                    "over them; numactl --cpunodebind=0 --membind=0 braid … uses one alone",
                    topology.nodes));
  }
}

Findings Examine(const Machine& machine) {
  Findings f;
  f.machine = machine;
  f.memory_total = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                   static_cast<int64_t>(::sysconf(_SC_PAGE_SIZE));
  f.memory_available = AvailableMemory();
  f.huge_pages = Chosen(FirstLine("/sys/kernel/mm/transparent_hugepage/enabled"));
  ThreadPool pool(machine.threads, machine.places);
  f.limits = MeasureLimits(machine.cpu, machine.device.isa, pool);
  f.devices = FindDevices();
  Advise(f);
  return f;
}

void PrintDevices(const Findings& f) {
  fmt::print("\nVulkan devices:\n");
  if (!f.devices.why_none.empty()) fmt::print("  none: {}\n", f.devices.why_none);
  for (const auto& [facts, limits] : f.devices.found) {
    fmt::print("  {}: {} ({}, Vulkan {}, {}), {}\n", facts.index, facts.name, facts.kind,
               facts.version, facts.driver, ByteText(facts.memory_bytes));
    if (!facts.missing.empty()) {
      fmt::print("     cannot be used: {}\n", facts.missing);
      continue;
    }
    fmt::print("     {:<16} {:>9.1f} Gop/s\n", "fp32", limits.fp32_operations_per_second * 1e-9);
    fmt::print("     {:<16} {:>9.1f} GB/s\n", "memory, reading",
               limits.read_bytes_per_second * 1e-9);
    fmt::print("     {:<16} {:>9.1f} us\n", "a kernel's start", limits.start_seconds * 1e6);
  }
}

void PrintFindings(const Findings& f) {
  const CpuFeatures& cpu = f.machine.cpu;
  const auto line = [](std::string_view name, const std::string& value) {
    fmt::print("{:<16} {}\n", name, value);
  };
  line("CPU", cpu.model_name);
  const Topology& topology = cpu.topology;
  line("cores", fmt::format("{} physical, {} logical, {} NUMA node{}", topology.cores.size(),
                            topology.logical_cpus, topology.nodes, topology.nodes == 1 ? "" : "s"));
  line("features", FeatureList(cpu));
  line("kernels",
       fmt::format("{}, {} threads, products in {}", NameOf(f.machine.device.isa),
                   f.machine.threads, f.machine.device.compute == Compute::kF32 ? "fp32" : "bf16"));
  line("memory",
       fmt::format("{}, of it free {}", ByteText(f.memory_total), ByteText(f.memory_available)));
  line("huge pages", f.huge_pages.empty() ? "unknown" : f.huge_pages);
  fmt::print("\nmeasured, {} threads together:\n", f.machine.threads);
  for (const UnitPeak& peak : f.limits.units) {
    fmt::print("  {:<18} {:>9.1f} Gop/s\n", NameOf(peak.unit), peak.operations_per_second * 1e-9);
  }
  const Bandwidth& bandwidth = f.limits.bandwidth;
  for (const auto& [name, rate] :
       {std::pair{"memory, reading", bandwidth.memory_read},
        std::pair{"memory, copying", bandwidth.memory_copy},
        std::pair{"L2, reading", bandwidth.l2_read}, std::pair{"L3, reading", bandwidth.l3_read}}) {
    fmt::print("  {:<18} {:>9.1f} GB/s\n", name, rate * 1e-9);
  }
  PrintDevices(f);
  fmt::print("\n");
  for (const std::string& advice : f.advice) fmt::print("* {}\n", advice);
  if (f.advice.empty()) fmt::print("Nothing to change.\n");
}

void PrintJson(const Findings& f) {
  json::array advice;
  for (const std::string& text : f.advice) advice.emplace_back(text);
  json::array devices;
  for (const auto& [facts, limits] : f.devices.found) {
    devices.push_back(json::object{{"index", facts.index},
                                   {"name", facts.name},
                                   {"kind", facts.kind},
                                   {"driver", facts.driver},
                                   {"vulkan", facts.version},
                                   {"memory_bytes", facts.memory_bytes},
                                   {"subgroup", facts.subgroup},
                                   {"missing", facts.missing},
                                   {"fma_fp32", limits.fp32_operations_per_second},
                                   {"memory_read", limits.read_bytes_per_second},
                                   {"kernel_start_seconds", limits.start_seconds}});
  }
  const Topology& topology = f.machine.cpu.topology;
  const json::object out{{"cpu", f.machine.cpu.model_name},
                         {"physical_cores", topology.cores.size()},
                         {"logical_cores", topology.logical_cpus},
                         {"numa_nodes", topology.nodes},
                         {"quota_cpus", topology.quota_cpus},
                         {"features", FeatureList(f.machine.cpu)},
                         {"isa", std::string(NameOf(f.machine.device.isa))},
                         {"threads", f.machine.threads},
                         {"memory_bytes", f.memory_total},
                         {"memory_available_bytes", f.memory_available},
                         {"huge_pages", f.huge_pages},
                         {"limits", LimitsObject(f.limits)},
                         {"vulkan_devices", std::move(devices)},
                         {"no_vulkan_devices", f.devices.why_none},
                         {"advice", std::move(advice)}};
  fmt::print("{}\n", json::serialize(out));
}

class DoctorCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Switch("--json", json_, "Print a JSON object");
    AddDeviceFlags(flags, options_);
  }
  Status Run() override {
    ASSIGN_OR_RETURN(const Machine machine, ResolveMachine(options_));
    const Findings findings = Examine(machine);
    json_ ? PrintJson(findings) : PrintFindings(findings);
    return {};
  }

 private:
  EngineOptions options_;
  bool json_ = false;
};

}  // namespace

CommandPointer MakeDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace braid
