// How fast memory is read: measured with the loops of ops/cpu/kernels/peak.h, all threads of a pool
// together. The best of many short repetitions, because other work can only slow a repetition down.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "base/system/thread_pool.h"
#include "ops/cpu/kernels/peak.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace braid::ops::cpu {

MemoryLoops MemoryLoopsFor(Isa isa);

// The shortest run of f within the budget of seconds; f runs at least twice.
template <class F>
double BestSeconds(double budget, const F& f) {
  const auto since = [](int64_t start_ns) {
    return static_cast<double>(MonotonicNs() - start_ns) * 1e-9;
  };
  double best = 1e30;
  const int64_t begin_ns = MonotonicNs();
  for (int runs = 0; runs < 2 || since(begin_ns) < budget; ++runs) {
    const int64_t start_ns = MonotonicNs();
    f();
    best = std::min(best, since(start_ns));
  }
  return best;
}

// The faster of the ways to read.
template <class F>
double BestRead(const MemoryLoops& loops, double budget, const F& f) {
  double best = 1e30;
  for (const auto read : loops.read) {
    best = std::min(best, BestSeconds(budget / 2, [&] { f(read); }));
  }
  return best;
}

// Reading, by default far more than caches hold: what a machine shared with others gives just now.
class MemoryMeter {
 public:
  static constexpr int64_t kTaskBytes = int64_t{1} << 20;
  static constexpr int64_t kBytes = 512 * kTaskBytes;

  // `bytes`: of the buffer, in whole tasks. What is smaller than a cache is read from there.
  MemoryMeter(Isa isa, ThreadPool& pool, int64_t bytes = kBytes);
  // Bytes per second: the best pass in `budget` seconds.
  double Read(double budget) const;
  const Buffer& buffer() const { return buffer_; }

 private:
  MemoryLoops loops_;
  ThreadPool& pool_;
  Buffer buffer_;
};

}  // namespace braid::ops::cpu
