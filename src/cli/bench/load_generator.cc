// The bodies and events of streamed completions; see the header.
#include "cli/bench/load_generator.h"

#include <fmt/core.h>

namespace braid {
namespace {

constexpr int32_t kTimeoutSeconds = 3600;  // of one answer; the longest prompts take minutes

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

void TakeUsage(const json::value& event, StreamedAnswer& answer) {
  boost::system::error_code error;
  const auto count = [&](const char* pointer) -> std::optional<int64_t> {
    const json::value* value = event.find_pointer(pointer, error);
    return value != nullptr && value->is_int64() ? std::optional(value->get_int64()) : std::nullopt;
  };
  answer.prompt_tokens = count("/usage/prompt_tokens").value_or(answer.prompt_tokens);
  answer.output_tokens = count("/usage/completion_tokens").value_or(answer.output_tokens);
  if (const auto cached = count("/usage/prompt_tokens_details/cached_tokens")) {
    answer.cached_tokens = cached;
  }
}

void TakeEvent(std::string_view data, int64_t at_us, StreamedAnswer& answer) {
  if (data == "[DONE]") return;
  const auto event = ParseJson(data, "event");
  if (!event || !event->is_object()) {
    answer.error = "an event that is no JSON object";
    return;
  }
  boost::system::error_code error;
  if (const json::value* problem = event->get_object().if_contains("error")) {
    answer.error = JsonExcerpt(*problem, 200);
  }
  if (const json::value* piece = event->find_pointer("/choices/0/text", error)) {
    const json::value* finish = event->find_pointer("/choices/0/finish_reason", error);
    const bool empty = *piece == json::value("");
    // Tokens that show no text yet (half a character) count when the server sends an event for
    // them; an event that only says that this is the end does not, unless it is all there is.
    if (!empty || finish == nullptr || finish->is_null() || answer.token_us.empty()) {
      answer.token_us.push_back(at_us);
    }
    if (piece->is_string()) answer.text += piece->get_string();
  }
  const json::value* ids = event->find_pointer("/choices/0/token_ids", error);
  if (ids != nullptr && ids->is_array()) {
    const json::array& more = ids->get_array();
    answer.token_ids.insert(answer.token_ids.end(), more.begin(), more.end());
  }
  TakeUsage(*event, answer);
}

void TakeEnd(const HttpOutcome& outcome, StreamedAnswer& answer) {
  answer.sent_us = outcome.sent_us;
  answer.ended_us = outcome.ended_us;
  if (outcome.status == 0) {
    answer.error = outcome.error;
  } else if (outcome.status != 200) {
    answer.error = fmt::format("status {}: {}", outcome.status, outcome.body.substr(0, 200));
  } else if (answer.error.empty() && answer.token_us.empty()) {
    answer.error = "no token came";
  }
}

}  // namespace

void CompletionServer::AddFlags(Flags& flags) {
  flags.Text("--base-url", base_url, "Server, http://HOST:PORT/v1");
  flags.Text("--model", model, "Model's name there (default: the first of /models)");
  flags.Text("--api-key", api_key, "Key, if the server wants one");
}

Result<Endpoint> CompletionServer::Find() {
  ASSIGN_OR_RETURN(const Endpoint endpoint, ParseBaseUrl(base_url));
  if (model.empty()) {
    ASSIGN_OR_RETURN(model, FirstModel(base_url, api_key));
  }
  return endpoint;
}

json::value RandomPrompt(Rng& rng, int64_t tokens, bool words) {
  constexpr int64_t kIdBegin = 300, kIdEnd = 1000;
  constexpr std::string_view kWords[] = {"river", "stone", "green", "walk",  "seven", "paper",
                                         "light", "house", "cloud", "music", "bread", "north"};
  json::array ids;
  json::string text;
  for (int64_t t = 0; t < tokens; ++t) {
    if (words) {
      text += ' ';
      text += kWords[rng.Below(12)];
    } else {
      ids.push_back(kIdBegin + rng.Below(kIdEnd - kIdBegin));
    }
  }
  if (words) return text;
  return ids;
}

HttpCall CompletionCall(const std::string& model, json::value prompt, int64_t output_tokens,
                        const json::object& more) {
  json::object body{{"model", model},
                    {"prompt", std::move(prompt)},
                    {"max_tokens", output_tokens},
                    {"temperature", 0},
                    {"ignore_eos", true},
                    {"stream", true},
                    {"stream_options", json::object{{"include_usage", true}}}};
  for (const auto& [key, value] : more) body[key] = value;
  return {.target = "/completions", .body = json::serialize(body)};
}

std::vector<StreamedAnswer> StreamCompletions(const Endpoint& endpoint, const std::string& api_key,
                                              int32_t concurrency,
                                              const std::vector<HttpCall>& calls,
                                              const std::function<void(size_t done)>& on_done) {
  std::vector<StreamedAnswer> answers(calls.size());
  HttpLoad load{.endpoint = endpoint,
                .api_key = api_key,
                .concurrency = concurrency,
                .timeout_seconds = kTimeoutSeconds};
  load.on_event = [&](size_t call, std::string_view data, int64_t at_us) {
    TakeEvent(data, at_us, answers[call]);
  };
  size_t done = 0;
  load.on_end = [&](size_t call, HttpOutcome outcome) {
    TakeEnd(outcome, answers[call]);
    if (on_done) on_done(++done);
  };
  RunCalls(load, calls);
  return answers;
}

}  // namespace braid
