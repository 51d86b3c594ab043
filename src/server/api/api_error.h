// Errors of requests in OpenAI's form: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "server/http/types.h"

namespace braid {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};           // the field's path, "messages[2].content"; empty: null
  std::string code = {};            // a closed set of words; empty: null
  int32_t retry_after_seconds = 1;  // with 429 and 503
};

// Ok, or why a request cannot be served.
using ApiStatus = Result<void, ApiError>;

// The engine's or a parser's error as an API error: kInvalid 400, kNotFound 404, kUnavailable and
// kExhausted 503, kInternal 500.
ApiError ToApiError(const Error& error);

json::object ErrorJson(const ApiError& error);
// Anthropic's form: {"type": "error", "error": {"type", "message"}}.
json::object AnthropicErrorJson(const ApiError& error);

HttpResponse ErrorResponse(const ApiError& error, bool anthropic = false);

}  // namespace braid
