// The loops themselves are in ops/cpu/<isa>/peak.cc; here they are shared out and timed.
#include "cli/bench/machine_limits.h"

#include <algorithm>

#include "base/check.h"

namespace braid {
namespace {

using ops::cpu::BestRead;
using ops::cpu::BestSeconds;
using ops::cpu::MemoryLoops;
using ops::cpu::PeakLoop;

constexpr double kUnitSeconds = 0.08;
constexpr double kRepeatSeconds = 300e-6;
constexpr int64_t kMeterBytes = MemoryMeter::kBytes;
constexpr int64_t kTaskBytes = MemoryMeter::kTaskBytes;

struct UnitEntry {
  std::string_view key, name;
  Isa isa;
  bool (*has)(const CpuFeatures&);
  PeakLoop (*loop)();
};
constexpr auto kAlways = [](const CpuFeatures&) { return true; };
constexpr UnitEntry kUnits[] = {
    {"fma_base", "fp32, SSE", Isa::kBase, kAlways, ops::cpu::PeakFmaBase},
    {"fma_avx2", "fp32, AVX2", Isa::kAvx2, kAlways, ops::cpu::PeakFmaAvx2},
    {"dot_int8_avx2", "int8, AVX-VNNI", Isa::kAvx2, [](const CpuFeatures& c) { return c.avx_vnni; },
     ops::cpu::PeakDotInt8Avx2},
    {"fma_avx512", "fp32, AVX-512", Isa::kAvx512, kAlways, ops::cpu::PeakFmaAvx512},
    {"dot_bf16_avx512", "bf16, AVX512-BF16", Isa::kAvx512,
     [](const CpuFeatures& c) { return c.avx512_bf16; }, ops::cpu::PeakDotBf16Avx512},
    {"dot_int8_avx512", "int8, AVX512-VNNI", Isa::kAvx512,
     [](const CpuFeatures& c) { return c.avx512_vnni; }, ops::cpu::PeakDotInt8Avx512},
    {"groups_int4_avx512", "int4/32, AVX512-VNNI", Isa::kAvx512,
     [](const CpuFeatures& c) { return c.avx512_vnni; }, ops::cpu::PeakGroupsInt4Avx512},
    {"tile_bf16", "bf16, AMX", Isa::kAmx, kAlways, ops::cpu::PeakTileBf16},
    {"tile_int8", "int8, AMX", Isa::kAmx, [](const CpuFeatures& c) { return c.amx_int8; },
     ops::cpu::PeakTileInt8},
};
const UnitEntry& EntryOf(Unit unit) { return kUnits[static_cast<int>(unit)]; }

// Every thread reads its own `bytes` of the buffer `passes` times.
double CacheRead(const MemoryLoops& loops, const Buffer& buffer, int64_t bytes, ThreadPool& pool) {
  const int64_t threads = std::min<int64_t>(pool.threads(), buffer.bytes() / bytes);
  const int64_t passes = std::max<int64_t>(1, (int64_t{16} << 20) / bytes);
  std::vector<int64_t> sums(static_cast<size_t>(threads));
  const double seconds = BestRead(loops, 0.05, [&](auto read) {
    pool.Run(threads, [&](int64_t task, int) {
      int64_t& sum = sums[static_cast<size_t>(task)];
      for (int64_t pass = 0; pass < passes; ++pass) {
        sum += read(buffer.data() + task * bytes, bytes);
      }
    });
  });
  for (int64_t sum : sums) CHECK(sum == 0, "an even number of equal words cancels");
  return static_cast<double>(threads * passes * bytes) / seconds;
}

}  // namespace

std::string_view NameOf(Unit unit) { return EntryOf(unit).name; }
std::string_view KeyOf(Unit unit) { return EntryOf(unit).key; }

Unit UnitFor(const Device& device, ops::WeightFormat weights) {
  const Isa isa = device.isa;
  const ops::WeightFormatRow& format = ops::RowOf(weights);
  if (format.integers) {
    // Elsewhere groups are held to the peak of int8.
    const bool groups = format.group != 0 && isa == Isa::kAvx512;
    if (isa == Isa::kAmx) return Unit::kTileInt8;
    if (device.avx512_vnni) return groups ? Unit::kGroupsInt4Avx512 : Unit::kDotInt8Avx512;
    if (device.avx_vnni) return Unit::kDotInt8Avx2;
  } else if (device.compute == Compute::kBF16 && weights != ops::WeightFormat::kF32 &&
             weights != ops::WeightFormat::kF16) {
    if (isa == Isa::kAmx) return Unit::kTileBf16;
    if (device.avx512_bf16) return Unit::kDotBf16;
  }
  if (isa >= Isa::kAvx512) return Unit::kFmaAvx512;
  return isa == Isa::kAvx2 ? Unit::kFmaAvx2 : Unit::kFmaBase;
}

double MeasureUnit(Unit unit, ThreadPool& pool) {
  const PeakLoop loop = EntryOf(unit).loop();
  std::vector<float> results(static_cast<size_t>(pool.threads()));
  int64_t rounds = 64;
  const auto run = [&] {
    pool.Run(pool.threads(), [&](int64_t task, int) {
      results[static_cast<size_t>(task)] = loop.run(rounds, static_cast<float>(task + 1));
    });
  };
  while (rounds < (int64_t{1} << 30) && BestSeconds(0, run) < kRepeatSeconds) rounds *= 2;
  const double seconds = BestSeconds(kUnitSeconds, run);
  // Also keeps the loop from being optimised away.
  for (float result : results) CHECK(result == result, "{}: not a number", NameOf(unit));
  return loop.operations_per_round * static_cast<double>(rounds * pool.threads()) / seconds;
}

Bandwidth MeasureBandwidth(Isa isa, ThreadPool& pool) {
  constexpr int64_t kWindowBytes = int64_t{32} << 20;
  constexpr int64_t kTasks = kWindowBytes / kTaskBytes;
  const MemoryLoops loops = ops::cpu::MemoryLoopsFor(isa);
  const MemoryMeter meter(isa, pool);
  const Buffer& buffer = meter.buffer();
  // Windows follow each other through the whole buffer: none is still in a cache when it is read.
  int64_t window = 0;
  const auto next_window = [&] {
    window = (window + kWindowBytes) % kMeterBytes;
    return buffer.data() + window;
  };
  Bandwidth out;
  out.memory_read = meter.Read(0.3);
  out.memory_copy = 2.0 * static_cast<double>(kWindowBytes) / BestSeconds(0.1, [&] {
                      const std::byte* from = next_window();
                      std::byte* to = buffer.data() + (window + kMeterBytes / 2) % kMeterBytes;
                      pool.Run(kTasks, [&](int64_t task, int) {
                        loops.copy(from + task * kTaskBytes, to + task * kTaskBytes, kTaskBytes);
                      });
                    });
  out.l2_read = CacheRead(loops, buffer, int64_t{512} << 10, pool);
  out.l3_read = CacheRead(loops, buffer, int64_t{8} << 20, pool);
  return out;
}

double MachineLimits::PeakOf(Unit unit) const {
  for (const UnitPeak& peak : units) {
    if (peak.unit == unit) return peak.operations_per_second;
  }
  CHECK(false, "{} was not measured", NameOf(unit));
}

json::object LimitsObject(const MachineLimits& limits) {
  json::object out;
  for (const UnitPeak& peak : limits.units) out[KeyOf(peak.unit)] = peak.operations_per_second;
  out["memory_read"] = limits.bandwidth.memory_read;
  out["memory_copy"] = limits.bandwidth.memory_copy;
  out["l2_read"] = limits.bandwidth.l2_read;
  out["l3_read"] = limits.bandwidth.l3_read;
  return out;
}

MachineLimits MeasureLimits(const CpuFeatures& cpu, Isa isa, ThreadPool& pool) {
  MachineLimits limits;
  for (int i = 0; i < static_cast<int>(std::size(kUnits)); ++i) {
    if (kUnits[i].isa > isa || !kUnits[i].has(cpu)) continue;
    const auto unit = static_cast<Unit>(i);
    limits.units.push_back({unit, MeasureUnit(unit, pool)});
  }
  limits.bandwidth = MeasureBandwidth(isa, pool);
  return limits;
}

}  // namespace braid
