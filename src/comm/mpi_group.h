// The group of all processes that one mpirun started. Open MPI is loaded when it is asked for, so a
// machine without it runs everything else.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace braid {

// Whether the environment says that mpirun started this process.
bool StartedByMpi();

// Joins the group. kUnavailable if Open MPI 4.1 (libmpi.so.40) cannot be loaded or initialised. At
// most once in a process. The communicator leaves the group when it is destroyed; after an error it
// does not wait for the others, and mpirun ends them when the process ends.
Result<std::unique_ptr<Communicator>> JoinMpiGroup(std::chrono::milliseconds deadline);

}  // namespace braid
