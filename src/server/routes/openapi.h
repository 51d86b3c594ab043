// The OpenAPI document, made from the tables of routes and fields that the parser reads.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/api/api_request.h"
#include "server/api/fields.h"

namespace braid {

// What a field takes, in JSON Schema, and what becomes of it.
json::object FieldSchema(const Field& field, const RequestLimits& limits);

json::object OpenApiDocument(const RequestLimits& limits, std::string_view version);

}  // namespace braid
