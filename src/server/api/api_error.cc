// Errors to JSON and to HTTP.
#include "server/api/api_error.h"

namespace braid {
namespace {

json::value TextOrNull(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

std::string_view TypeOf(int status) {
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

ApiError ToApiError(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalid:
      return {400, error.message, error.field};
    case ErrorCode::kNotFound:
      return {404, error.message, error.field};
    case ErrorCode::kUnavailable:
      return {503, error.message, error.field, "unavailable"};
    case ErrorCode::kExhausted:
      return {503, error.message, error.field, "overloaded"};
    case ErrorCode::kInternal:
      break;
  }
  return {500, error.message, error.field};
}

json::object ErrorJson(const ApiError& error) {
  return {{"error", json::object{{"message", error.message},
                                 {"type", TypeOf(error.status)},
                                 {"param", TextOrNull(error.param)},
                                 {"code", TextOrNull(error.code)}}}};
}

json::object AnthropicErrorJson(const ApiError& error) {
  const int status = error.status;
  const std::string_view type = status == 401   ? "authentication_error"
                                : status == 403 ? "permission_error"
                                : status == 404 ? "not_found_error"
                                : status == 413 ? "request_too_large"
                                : status == 429 ? "rate_limit_error"
                                : status == 503 ? "overloaded_error"
                                : status >= 500 ? "api_error"
                                                : "invalid_request_error";
  return {{"type", "error"}, {"error", json::object{{"type", type}, {"message", error.message}}}};
}

HttpResponse ErrorResponse(const ApiError& error, bool anthropic) {
  const json::object body = anthropic ? AnthropicErrorJson(error) : ErrorJson(error);
  HttpResponse response{.status = error.status, .body = json::serialize(body)};
  if (error.status == 503 || error.status == 429) {
    response.retry_after_seconds = error.retry_after_seconds;
  }
  if (error.status == 401) response.headers = "WWW-Authenticate: Bearer\r\n";
  return response;
}

}  // namespace braid
