// The OpenAPI document, made from the route table and the field table that the parser reads.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/api_request.h"

namespace braid {

json::object OpenApiDocument(const RequestLimits& limits, std::string_view version);

}  // namespace braid
