// Which of how many processes this one is, as whatever started them says in the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace braid {

struct Launch {
  std::string_view by;  // "mpirun", "Slurm", "torchrun", "LeaderWorkerSet"; empty: one process
  int32_t rank = 0, ranks = 1;
  int32_t ranks_here = 1;  // on this machine
  bool mpi = false;        // Open MPI connects them; else they do, at rank 0's address
  std::string host;        // of rank 0
  uint16_t port = 0;

  bool several() const { return ranks > 1; }
};

// `get` is std::getenv or, in a test, a table. kInvalid: a variable is missing or makes no sense.
using Environment = std::function<const char*(const char*)>;
Result<Launch> ReadLaunch(const Environment& get);

// Of this process, read once; one process where the variables are wrong, which CheckLaunch says.
const Launch& LaunchHere();
Status CheckLaunch();

}  // namespace braid
