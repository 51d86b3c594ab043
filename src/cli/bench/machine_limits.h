// Measures the machine's limits: operations per second of each arithmetic unit, bytes per second
// from memory and caches. Benchmarks measure them in the same run as the figures they compare. Each
// limit is the best of many short repetitions, because other work can only slow a repetition down.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/system/thread_pool.h"
#include "ops/cpu/memory_meter.h"
#include "ops/packed.h"
#include "tensor/device.h"

namespace braid {

// Arithmetic whose peaks differ. In the order of kUnits (machine_limits.cc).
enum class Unit : uint8_t {
  kFmaBase,
  kFmaAvx2,
  kDotInt8Avx2,
  kFmaAvx512,
  kDotBf16,
  kDotInt8Avx512,
  kGroupsInt4Avx512,
  kTileBf16,
  kTileInt8,
};
std::string_view NameOf(Unit unit);  // "fp32, AVX-512"
std::string_view KeyOf(Unit unit);   // "fma_avx512", in JSON

// The unit with the highest peak for products with weights of a format on the device; fp32 stands
// for all arithmetic in fp32.
Unit UnitFor(const Device& device, ops::WeightFormat weights);

// Operations per second (a multiply-add is two), all threads of the pool together. 0.1 s.
double MeasureUnit(Unit unit, ThreadPool& pool);

using ops::cpu::MemoryMeter;

// Bytes per second, all threads of the pool together. 0.6 s and 512 MiB.
struct Bandwidth {
  double memory_read = 0;  // as one stream per thread or as several, whichever is faster
  double memory_copy = 0;  // read and written bytes together
  double l2_read = 0;      // 512 KiB per thread, again and again
  double l3_read = 0;      // 8 MiB per thread
};
Bandwidth MeasureBandwidth(Isa isa, ThreadPool& pool);

struct UnitPeak {
  Unit unit;
  double operations_per_second;
};
struct MachineLimits {
  std::vector<UnitPeak> units;  // those that the CPU has, up to the instruction set
  Bandwidth bandwidth;
  double PeakOf(Unit unit) const;  // of a unit in `units`
};
// {"fma_avx2": operations per second, …, "memory_read": bytes per second, …}
json::object LimitsObject(const MachineLimits& limits);
// Under 2 s.
MachineLimits MeasureLimits(const CpuFeatures& cpu, Isa isa, ThreadPool& pool);

}  // namespace braid
