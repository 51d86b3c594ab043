// An engine that publishes what its cache holds, messages that are lost, late or twice, and a
// router that reads them: does it know what the engine holds? Pure; seeds decide.
#pragma once

#include <cstdint>
#include <string>

namespace braid {

// Runs seeds [0, seeds). What went wrong first; empty: nothing. After the last message has come,
// the router knows exactly what the engine holds if the engine repeats all that it is asked for,
// and never anything that the engine does not hold.
std::string RunCaches(int32_t seeds);

}  // namespace braid
