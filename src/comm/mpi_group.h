// The group of all processes that one mpirun started. Open MPI is loaded when it is asked for, so a
// machine without it runs everything else.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace braid {

// Joins the group. kUnavailable if Open MPI 4.1 (libmpi.so.40) cannot be loaded or initialised. At
// most once in a process. The communicator leaves the group when it is destroyed; after an error it
// does not wait for the others, and mpirun ends them when the process ends.
Result<std::unique_ptr<Communicator>> JoinMpiGroup(std::chrono::milliseconds deadline);

// Some ranks of the group, ascending, as a group of their own, in which their numbers are their
// places in `members`. Groups that share ranks have different channels, 1 to 7, the same on all
// ranks. `all` is what JoinMpiGroup has given and outlives the group; an error of one is an error
// of all groups of this process. Each group may have a thread of its own; a patient one sleeps
// while it waits.
std::unique_ptr<Communicator> MpiGroupOf(Communicator& all, std::vector<int32_t> members,
                                         int32_t channel, bool patient = false);

}  // namespace braid
