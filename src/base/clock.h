// The one source of time. Modules that must stay pure (scheduler, cache, sim) get times as numbers.
#pragma once

#include <cstdint>

namespace braid {

// Microseconds and nanoseconds of a monotonic clock with an arbitrary origin.
int64_t MonotonicUs();
int64_t MonotonicNs();

// Seconds since 1970-01-01 UTC, for `created` fields and log lines only.
int64_t UnixSeconds();
// Milliseconds since then, by which peers see which of two processes started later.
int64_t UnixMs();
// Microseconds since then, to compare with the times of files.
int64_t UnixUs();

}  // namespace braid
