// Bugs that the simulation must find. In every program but the mutant test this header is what is
// compiled: no bug is planted, and every mention of one disappears. The mutant test puts a
// directory in front of the include path whose header of the same name asks a variable instead.
#pragma once

#include "cache/planted_bugs.h"

namespace braid {

constexpr bool Planted(PlantedBug) { return false; }

}  // namespace braid
