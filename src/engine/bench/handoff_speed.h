// How fast parts of pages go from one process to another by the transport that partners use, with
// the checksums that they compute (`braid bench handoff`). The caller sends; a child that it starts
// receives, so no other thread may run yet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace braid {

struct HandoffLoad {
  int64_t part_bytes = 0;
  int64_t parts = 0;  // of one repetition
  int32_t repeat = 0;
};

// Seconds of each repetition. `host`: the address of this machine at which the receiver listens.
Result<std::vector<double>> MeasureHandoff(const HandoffLoad& load, const std::string& host);

}  // namespace braid
