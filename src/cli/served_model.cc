// One GET; see the header.
#include "cli/served_model.h"

#include <fmt/core.h>

#include "base/json.h"

namespace braid {

Result<std::string> FirstModel(const std::string& base_url, const std::string& api_key) {
  ASSIGN_OR_RETURN(const Endpoint endpoint, ParseBaseUrl(base_url));
  HttpLoad load{.endpoint = endpoint, .api_key = api_key, .timeout_seconds = 30};
  HttpOutcome answer;
  load.on_end = [&](size_t, HttpOutcome outcome) { answer = std::move(outcome); };
  RunCalls(load, {{.target = "/models", .body = ""}});
  if (answer.status != 200) {
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("{}/models: {}", base_url,
                    answer.status == 0 ? answer.error : fmt::format("status {}", answer.status))};
  }
  ASSIGN_OR_RETURN(const json::value body, ParseJson(answer.body, base_url + "/models"));
  boost::system::error_code error;
  const json::value* id = body.find_pointer("/data/0/id", error);
  if (id == nullptr || !id->is_string()) {
    return Error{ErrorCode::kInvalid, base_url + "/models names no model: give --model"};
  }
  return std::string(id->get_string());
}

}  // namespace braid
