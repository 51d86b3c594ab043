// The events with which a stream ends that cannot go on, in the form of its API.
#pragma once

#include <cstdint>
#include <string>

#include "server/api/api_error.h"
#include "server/api/api_request.h"

namespace braid {

// `sequence`: the number of the event, where events have one (Responses).
std::string StreamError(Endpoint endpoint, const ApiError& error, int64_t sequence = 0);

}  // namespace braid
