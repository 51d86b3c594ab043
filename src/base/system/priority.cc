// See the header.
#include "base/system/priority.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace braid {

void GiveWay(int steps) {
  constexpr int kLowest = 19;
  const int of_process = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::getpid()));
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), std::min(of_process + steps, kLowest));
}

}  // namespace braid
