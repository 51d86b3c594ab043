// Stands before src/ in the include path of the mutant test: one bug at a time, chosen at run time.
#pragma once

#include "cache/planted_bugs.h"

namespace braid {

extern PlantedBug planted_bug;  // defined in mutant_test.cc

inline bool Planted(PlantedBug bug) { return planted_bug == bug; }

}  // namespace braid
