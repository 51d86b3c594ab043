// A plan as one line for messages: what ranks or a replay planned where they differ. Any thread.
#pragma once

#include <string>

#include "scheduler/plan.h"

namespace braid {

std::string PlanText(const Plan& plan);

}  // namespace braid
