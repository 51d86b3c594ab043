// The routes about single responses of the Responses API: those that are stored, and those that are
// being made. A key reaches its own only; an admin's key can see and end others' while they run.
#pragma once

#include "server/service.h"

namespace braid {

// A Responses object: stored, or while it is being made.
HttpResponse OneResponse(const Service& service, const HttpRequest& request, std::string_view id,
                         const RunningBoard::Whose& whose);
// A page of the items that it read; `limit`, `order` and `after` in the query choose it.
HttpResponse ResponseInput(const Service& service, const HttpRequest& request, std::string_view id,
                           const RunningBoard::Whose& whose);
HttpResponse DeleteResponse(Service& service, std::string_view id,
                            const RunningBoard::Whose& whose);
HttpResponse CancelResponse(Service& service, const std::string& id,
                            const RunningBoard::Whose& whose);

}  // namespace braid
