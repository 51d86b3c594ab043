// Status, type and form of errors.
#include "server/api/api_error.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

std::string TypeOf(int status) {
  return std::string(ErrorJson({status, "m"}).at("error").as_object().at("type").as_string());
}

std::string AnthropicTypeOf(int status) {
  return std::string(
      AnthropicErrorJson({status, "m"}).at("error").as_object().at("type").as_string());
}

TEST(ApiError, EachErrorOfTheEngineHasItsStatusAndCode) {
  const auto is = [](ErrorCode code, int status, std::string_view word) {
    const ApiError error = ToApiError({code, "why", "field"});
    EXPECT_EQ(error.status, status);
    EXPECT_EQ(error.code, word);
    EXPECT_EQ(error.message, "why");
    EXPECT_EQ(error.param, "field");
  };
  is(ErrorCode::kInvalid, 400, "");
  is(ErrorCode::kNotFound, 404, "");
  is(ErrorCode::kUnavailable, 503, "unavailable");
  is(ErrorCode::kExhausted, 503, "overloaded");
  is(ErrorCode::kInternal, 500, "");
}

TEST(ApiError, OpenAisTypesFollowTheStatus) {
  for (const int status : {400, 401, 404, 413, 499}) {
    EXPECT_EQ(TypeOf(status), "invalid_request_error") << status;
  }
  EXPECT_EQ(TypeOf(429), "rate_limit_error");
  EXPECT_EQ(TypeOf(500), "server_error");
  EXPECT_EQ(TypeOf(503), "server_error");
}

TEST(ApiError, AnthropicsTypesFollowTheStatus) {
  const std::pair<int, const char*> types[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {413, "request_too_large"},     {429, "rate_limit_error"},
      {499, "invalid_request_error"}, {500, "api_error"},
      {503, "overloaded_error"},      {504, "api_error"}};
  for (const auto& [status, type] : types) EXPECT_EQ(AnthropicTypeOf(status), type) << status;
}

TEST(ApiError, EmptyParamAndCodeAreNull) {
  EXPECT_EQ(ErrorResponse({400, "m"}).body,
            R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}})");
  EXPECT_EQ(ErrorResponse({400, "m", "p", "c"}).body,
            R"({"error":{"message":"m","type":"invalid_request_error","param":"p","code":"c"}})");
  EXPECT_EQ(ErrorResponse({400, "m", "p", "c"}, true).body,
            R"({"type":"error","error":{"type":"invalid_request_error","message":"m"}})");
}

TEST(ApiError, OnlyErrorsThatPassHaveRetryAfter) {
  for (const int status : {429, 503}) {
    EXPECT_EQ(ErrorResponse({status, "m", {}, {}, 9}).retry_after_seconds, 9) << status;
  }
  for (const int status : {400, 404, 500, 502}) {
    EXPECT_EQ(ErrorResponse({status, "m", {}, {}, 9}).retry_after_seconds, 0) << status;
  }
}

TEST(ApiError, OnlyAMissingKeyAsksForOne) {
  EXPECT_EQ(ErrorResponse({401, "m"}, true).headers, "WWW-Authenticate: Bearer\r\n");
  EXPECT_EQ(ErrorResponse({403, "m"}).headers, "");
}

}  // namespace
}  // namespace braid
