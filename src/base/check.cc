// The one place where the process stops on a programmer's error.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace braid {

void CheckFailed(const char* file, int line, const char* what, const std::string& message) {
  std::fprintf(stderr, "braid: CHECK failed at %s:%d: %s%s%s\n", file, line, what,
               message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace braid
