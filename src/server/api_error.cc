// Errors to JSON and to HTTP.
#include "server/api_error.h"

namespace braid {
namespace {

json::value OrNull(const std::string& text) {
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
                                 {"param", OrNull(error.param)},
                                 {"code", OrNull(error.code)}}}};
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = json::serialize(ErrorJson(error))};
  if (error.status == 503 || error.status == 429) response.retry_after_seconds = 1;
  return response;
}

}  // namespace braid
