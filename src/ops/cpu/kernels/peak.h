// Loops that keep one unit busy, to measure the peak of a machine: arithmetic on
// registers, reads and copies of memory. Nothing a model needs runs here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::ops::cpu {

struct PeakLoop {
  double operations_per_round;  // a multiply-add is two
  // Independent chains of the unit's instruction; the result depends on every one of them.
  float (*run)(int64_t rounds, float start);
};

PeakLoop PeakFmaBase();  // a multiplication and an addition, of four numbers each
PeakLoop PeakFmaAvx2();
PeakLoop PeakFmaAvx512();
PeakLoop PeakDotBf16Avx512();  // vdpbf16ps
PeakLoop PeakDotInt8Avx2();    // vpdpbusd of AVX-VNNI
PeakLoop PeakDotInt8Avx512();  // vpdpbusd of AVX512-VNNI
// The same in groups of 32 terms, each of whose sums is converted and multiplied with a scale; only
// the products of integers count as operations.
PeakLoop PeakGroupsInt4Avx512();
PeakLoop PeakTileBf16();  // tdpbf16ps
PeakLoop PeakTileInt8();  // tdpbssd

// Memory. `bytes` is a multiple of kMemoryStep, pointers are 64-byte aligned.
inline constexpr int kStreamsMost = 4;
inline constexpr int64_t kMemoryStep = kStreamsMost * 64;
struct MemoryLoops {
  // XOR of all 64-bit words: one stream, which the processor fetches ahead by itself, and
  // kStreamsMost at once with prefetches. Which of the two is faster depends on the processor.
  int64_t (*read[2])(const std::byte* data, int64_t bytes);
  // Stores that do not read their target first.
  void (*copy)(const std::byte* from, std::byte* to, int64_t bytes);
};
MemoryLoops MemoryLoopsBase();
MemoryLoops MemoryLoopsAvx2();
MemoryLoops MemoryLoopsAvx512();

}  // namespace braid::ops::cpu
