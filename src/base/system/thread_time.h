// How long a thread has run on a CPU, for measurements. Any thread.
#pragma once

#include <cstdint>

namespace braid {

// Nanoseconds of the calling thread. While it waits, or another thread has its core, they stand
// still.
int64_t ThreadCpuNs();

}  // namespace braid
