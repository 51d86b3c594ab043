// See the header.
#include "base/system/thread_time.h"

#include <ctime>

namespace braid {

int64_t ThreadCpuNs() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace braid
