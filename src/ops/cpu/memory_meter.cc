// See the header.
#include "ops/cpu/memory_meter.h"

#include <vector>

#include "base/check.h"

namespace braid::ops::cpu {

MemoryLoops MemoryLoopsFor(Isa isa) {
  if (isa >= Isa::kAvx512) return MemoryLoopsAvx512();
  return isa == Isa::kAvx2 ? MemoryLoopsAvx2() : MemoryLoopsBase();
}

MemoryMeter::MemoryMeter(Isa isa, ThreadPool& pool, int64_t bytes)
    : loops_(MemoryLoopsFor(isa)), pool_(pool), buffer_(bytes) {
  CHECK(bytes > 0 && bytes % kTaskBytes == 0, "{} bytes are no whole tasks", bytes);
  // Written once: pages that were never touched are all the same zero page.
  pool.Run(bytes / kTaskBytes, [&](int64_t task, int) {
    std::fill_n(buffer_.as<int64_t>() + task * (kTaskBytes / 8), kTaskBytes / 8, task);
  });
}

// A pass over all of it, as long as a step's: shorter ones catch moments.
double MemoryMeter::Read(double budget) const {
  std::vector<int64_t> sums(static_cast<size_t>(buffer_.bytes() / kTaskBytes));
  const double seconds = BestRead(loops_, budget, [&](auto read) {
    pool_.Run(std::ssize(sums), [&](int64_t task, int) {
      sums[static_cast<size_t>(task)] = read(buffer_.data() + task * kTaskBytes, kTaskBytes);
    });
  });
  for (int64_t sum : sums) CHECK(sum == 0, "an even number of equal words cancels");
  return static_cast<double>(buffer_.bytes()) / seconds;
}

}  // namespace braid::ops::cpu
