// What the machine can do at best, measured: multiply-adds per second and bytes read per second.
// What benches are compared with.
#pragma once

#include "base/thread_pool.h"
#include "tensor/device.h"

namespace braid {

// fp32 operations per second (a fused multiply-add is two) of the instruction set, all threads of
// the pool. Runs for about a quarter of a second.
double MeasureFlopsPerSecond(Isa isa, ThreadPool& pool);

// Bytes per second that all threads read together, from a buffer far larger than the caches. Takes
// about half a second and 512 MiB.
double MeasureBytesPerSecond(Isa isa, ThreadPool& pool);

}  // namespace braid
