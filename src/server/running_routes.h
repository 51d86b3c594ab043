// The routes about requests that are being answered: who they are, one response of them, its end.
#pragma once

#include "server/service.h"

namespace braid {

// Ids, phases, counts and times; never texts.
HttpResponse ListRunning(const Service& service, const RunningBoard::Whose& whose);
// A Responses object while it is being made; 404 before and after, for none is stored.
HttpResponse RunningResponse(const Service& service, std::string_view id,
                             const RunningBoard::Whose& whose);
HttpResponse CancelResponse(Service& service, const std::string& id,
                            const RunningBoard::Whose& whose);

}  // namespace braid
