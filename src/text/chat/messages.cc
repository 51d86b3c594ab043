// OpenAI-style messages in the form that templates expect. Errors carry the path of what is wrong.
#include <fmt/core.h>

#include <utility>

#include "base/text/written_json.h"
#include "text/chat/chat_template.h"

namespace braid {
namespace {

Error Wrong(const std::string& path, const json::value& found, std::string_view expected) {
  return {ErrorCode::kInvalid,
          fmt::format("{} is {}, expected {}", path, JsonKindName(found), expected), path};
}

// [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}] to "ab".
Result<std::string> JoinParts(const json::array& parts, const std::string& path) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!parts[i].is_object()) return Wrong(at, parts[i], "an object with type and text");
    const json::object& part = parts[i].get_object();
    const json::value* type = part.if_contains("type");
    if (type == nullptr || !type->is_string() || type->get_string() != "text") {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}.type is {}, expected \"text\": this server reads text only", at,
                               type == nullptr ? "missing" : JsonExcerpt(*type)),
                   at + ".type"};
    }
    const json::value* content = part.if_contains("text");
    if (content == nullptr || !content->is_string()) {
      return Wrong(at + ".text", content == nullptr ? json::value() : *content, "a string");
    }
    text += content->get_string();
  }
  return text;
}

// Replaces the arguments of one tool call, a JSON text, by the object that it holds. Other text, as
// of a call that was cut off, stays: it is for the template to say whether it can write it.
Status ParseArguments(json::value* call, const std::string& path) {
  if (!call->is_object()) return Wrong(path, *call, "an object with a function");
  json::value* function = call->get_object().if_contains("function");
  if (function == nullptr) return {};
  if (!function->is_object()) return Wrong(path + ".function", *function, "an object");
  json::value* arguments = function->get_object().if_contains("arguments");
  if (arguments == nullptr || arguments->is_object()) return {};
  const std::string at = path + ".function.arguments";
  if (!arguments->is_string()) return Wrong(at, *arguments, "a string that holds a JSON object");
  const std::string_view text = arguments->get_string();
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    *arguments = json::object();
    return {};
  }
  Result<json::value> parsed = ParseWrittenJson(text, at);
  if (parsed && parsed->is_object()) *arguments = *std::move(parsed);
  return {};
}

Status NormalizeMessage(json::value* value, const std::string& path) {
  if (!value->is_object()) return Wrong(path, *value, "an object with role and content");
  json::object& message = value->get_object();
  const json::value* role = message.if_contains("role");
  if (role == nullptr || !role->is_string()) {
    return Wrong(path + ".role", role == nullptr ? json::value() : *role, "a string");
  }
  if (json::value* content = message.if_contains("content"); content && content->is_array()) {
    ASSIGN_OR_RETURN(std::string text, JoinParts(content->get_array(), path + ".content"));
    *content = json::string(text);
  } else if (content != nullptr && !content->is_string() && !content->is_null()) {
    return Wrong(path + ".content", *content, "a string or a list of text parts");
  }
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr) return {};
  // Templates that ask whether the field is there would write calls, and not the content.
  if (calls->is_null() || (calls->is_array() && calls->get_array().empty())) {
    message.erase("tool_calls");
    return {};
  }
  if (!calls->is_array()) return Wrong(path + ".tool_calls", *calls, "an array");
  for (size_t i = 0; i < calls->get_array().size(); ++i) {
    json::value& call = calls->get_array()[i];
    RETURN_IF_ERROR(ParseArguments(&call, fmt::format("{}.tool_calls[{}]", path, i)));
  }
  return {};
}

}  // namespace

Result<json::array> NormalizeMessages(const json::value& messages) {
  if (!messages.is_array()) return Wrong("messages", messages, "an array of messages");
  json::array out = messages.get_array();
  if (out.empty()) {
    return Error{ErrorCode::kInvalid, "messages is empty, expected at least one message",
                 "messages"};
  }
  for (size_t i = 0; i < out.size(); ++i) {
    RETURN_IF_ERROR(NormalizeMessage(&out[i], fmt::format("messages[{}]", i)));
  }
  return out;
}

}  // namespace braid
