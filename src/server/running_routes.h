// The route about requests that are being answered: who they are and how far.
#pragma once

#include "server/service.h"

namespace braid {

// Ids, phases, counts and times; never texts.
HttpResponse ListRunning(const Service& service, const RunningBoard::Whose& whose);

}  // namespace braid
