// `braid eval --base-url`: the same items and checks through /chat/completions.
#include <fmt/core.h>

#include "base/progress.h"
#include "cli/bench/http_client.h"
#include "cli/eval.h"

namespace braid {
namespace {

std::string BodyOf(const RemoteModel& remote, const EvalItem& item, int32_t new_tokens_max) {
  json::object body{{"model", remote.model},
                    {"messages", item.messages},
                    {"temperature", 0},
                    {"max_tokens", new_tokens_max},
                    {"chat_template_kwargs", json::object{{"enable_thinking", item.thinking}}}};
  if (!item.tools.is_null()) body["tools"] = item.tools;
  return json::serialize(body);
}

// {"name", "arguments"} of a call in OpenAI's form, whose arguments are a string of JSON; null
// otherwise.
json::value CallOf(const json::value& call) {
  const json::object* object = call.if_object();
  const json::value* function = object != nullptr ? object->if_contains("function") : nullptr;
  if (function == nullptr || !function->is_object()) return nullptr;
  const json::value* name = function->get_object().if_contains("name");
  const json::value* arguments = function->get_object().if_contains("arguments");
  if (name == nullptr || arguments == nullptr) return nullptr;
  json::value parsed = *arguments;
  if (const json::string* text = arguments->if_string()) {
    auto value = ParseJson(*text, "arguments");
    if (!value) return nullptr;
    parsed = *std::move(value);
  }
  return json::object{{"name", *name}, {"arguments", std::move(parsed)}};
}

Result<EvalReply> ReplyOf(const HttpOutcome& outcome) {
  if (outcome.status != 200) {
    return Error{ErrorCode::kInternal,
                 outcome.status == 0
                     ? outcome.error
                     : fmt::format("status {}: {}", outcome.status, outcome.body.substr(0, 300))};
  }
  ASSIGN_OR_RETURN(const json::value body, ParseJson(outcome.body, "answer"));
  boost::system::error_code error;
  const json::value* message = body.find_pointer("/choices/0/message", error);
  if (message == nullptr || !message->is_object()) {
    return Error{ErrorCode::kInternal, "the answer has no choices[0].message"};
  }
  const json::object& object = message->get_object();
  const json::value* content = object.if_contains("content");
  const bool text = content != nullptr && content->is_string();
  EvalReply reply = SplitReply(text ? std::string_view(content->get_string()) : "");
  const json::value* calls = object.if_contains("tool_calls");
  if (calls != nullptr && calls->is_array()) {
    for (const json::value& call : calls->get_array()) reply.calls.push_back(CallOf(call));
  }
  return reply;
}

}  // namespace

Status EvalRemotely(const RemoteModel& remote, int32_t concurrency, int32_t new_tokens_max,
                    std::vector<EvalTask>& tasks) {
  HttpLoad load;
  ASSIGN_OR_RETURN(load.endpoint, ParseBaseUrl(remote.base_url));
  load.api_key = remote.api_key;
  load.concurrency = concurrency;
  std::vector<HttpCall> calls;
  std::vector<std::pair<EvalTask*, const EvalItem*>> items;
  for (EvalTask& task : tasks) {
    for (const EvalItem& item : task.chats) {
      calls.push_back(
          {.target = "/chat/completions", .body = BodyOf(remote, item, new_tokens_max)});
      items.emplace_back(&task, &item);
    }
  }
  ProgressBar bar("eval", 0);
  size_t done = 0;
  Status failed;
  load.on_end = [&](size_t call, HttpOutcome outcome) {
    const auto [task, item] = items[call];
    const auto reply = ReplyOf(outcome);
    if (reply) {
      task->right += IsRight(*item, *reply);
      ++task->answered;
    } else if (failed) {
      failed = Error{ErrorCode::kInternal, fmt::format("{}: {}", item->id, reply.error().message)};
    }
    bar.Show(static_cast<double>(++done) / static_cast<double>(items.size()), task->name);
  };
  RunCalls(load, calls);
  return failed;
}

}  // namespace braid
