// Parsers of conversations: messages, tools and what else reaches the chat template.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <span>

#include "server/api/conversation.h"
#include "server/api/limits.h"
#include "server/api/parsers.h"
#include "text/chat/chat_template.h"

namespace braid {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};
// What the server itself puts into the template's context.
constexpr std::array<std::string_view, 4> kReservedValues = {"messages", "tools",
                                                             "add_generation_prompt", "documents"};

bool IsToolName(std::string_view text) {
  return !text.empty() && text.size() <= limits::kToolNameBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

ApiStatus CheckContent(const json::value& content, const std::string& path) {
  RETURN_IF_ERROR(TextOfParts(content, "text", path));
  return {};
}

// Checks one message and brings roles and names of fields to the form that templates know.
ApiStatus CheckMessage(json::value& value, const std::string& path) {
  if (!value.is_object()) return WrongType(path, "an object", value);
  json::object& message = value.get_object();
  const json::value* role = message.if_contains("role");
  if (role == nullptr) {
    return ApiError{400, path + ".role: is missing", path + ".role"};
  }
  if (!role->is_string() || std::find(kRoles.begin(), kRoles.end(),
                                      std::string_view(role->get_string())) == kRoles.end()) {
    return WrongType(path + ".role",
                     fmt::format("one of {}", "system, developer, user, assistant, tool"), *role);
  }
  bool assistant = role->get_string() == "assistant";
  for (const char* key : {"function_call", "audio"}) {
    const json::value* old = message.if_contains(key);
    if (old == nullptr || old->is_null()) continue;
    const std::string at = fmt::format("{}.{}", path, key);
    return ApiError{
        400,
        fmt::format("{}: is not supported; use {}", at, *key == 'f' ? "tool_calls" : "content"), at,
        "unsupported_parameter"};
  }
  if (role->get_string() == "developer") message["role"] = "system";
  const json::value* name = message.if_contains("name");
  if (name != nullptr && !name->is_null() &&
      !(name->is_string() && name->get_string().size() <= limits::kMessageNameBytesMax)) {
    return WrongType(path + ".name",
                     fmt::format("a string of at most {} bytes", limits::kMessageNameBytesMax),
                     *name);
  }
  const json::value* content = message.if_contains("content");
  if (content != nullptr) {
    RETURN_IF_ERROR(CheckContent(*content, path + ".content"));
  }
  if ((content == nullptr || content->is_null()) && !assistant) {
    return ApiError{400, path + ".content: is missing", path + ".content"};
  }
  // Thinking comes back under either name.
  const json::value* thought = message.if_contains("reasoning_content");
  if (const json::value* reasoning = message.if_contains("reasoning");
      reasoning != nullptr && (thought == nullptr || thought->is_null())) {
    message["reasoning_content"] = json::value(*reasoning);
  }
  if (const json::value* reasoning = message.if_contains("reasoning_content");
      reasoning != nullptr && !reasoning->is_string() && !reasoning->is_null()) {
    return WrongType(path + ".reasoning_content", "a string", *reasoning);
  }
  return {};
}

ApiStatus CheckTool(const json::value& tool, const std::string& path) {
  const json::value* function =
      tool.is_object() ? tool.get_object().if_contains("function") : nullptr;
  if (function == nullptr || !function->is_object()) {
    return WrongType(path, "an object with type \"function\" and a function", tool);
  }
  const json::value* name = function->get_object().if_contains("name");
  if (name == nullptr || !name->is_string() || !IsToolName(name->get_string())) {
    return WrongType(path + ".function.name", "1 to 64 letters, digits, - or _",
                     name == nullptr ? json::value(nullptr) : *name);
  }
  const json::value* strict = function->get_object().if_contains("strict");
  if (strict != nullptr && !strict->is_bool() && !strict->is_null()) {
    return WrongType(path + ".function.strict", "true or false", *strict);
  }
  return {};
}

// The name in {"type": "function", "function": {"name": …}} or {"type": "function", "name": …};
// empty: there is none.
std::string_view ToolName(const json::value& tool) {
  const json::value* function = Member(tool, "function");
  const json::value* name = Member(function == nullptr ? tool : *function, "name");
  return name != nullptr && name->is_string() ? std::string_view(name->get_string())
                                              : std::string_view();
}

bool IsOneOf(const json::value& value, std::span<const std::string_view> words) {
  return value.is_string() &&
         std::find(words.begin(), words.end(), std::string_view(value.get_string())) != words.end();
}

// {"mode": "auto" or "required", "tools": […]}: only these may be called.
ApiStatus ParseAllowedTools(const json::value& value, const std::string& path,
                            ApiRequest* request) {
  const json::value *mode = Member(value, "mode"), *tools = Member(value, "tools");
  if (mode == nullptr || (*mode != "auto" && *mode != "required")) {
    return WrongType(path + ".mode", "\"auto\" or \"required\"",
                     mode == nullptr ? json::value(nullptr) : *mode);
  }
  if (tools == nullptr || !tools->is_array() || tools->get_array().empty()) {
    return WrongType(path + ".tools", "a list of at least one tool",
                     tools == nullptr ? json::value(nullptr) : *tools);
  }
  if (*mode == "required") request->tool_choice = ToolChoice::kRequired;
  size_t index = 0;
  for (const json::value& tool : tools->get_array()) {
    const std::string_view name = ToolName(tool);
    if (name.empty()) {
      return WrongType(fmt::format("{}.tools[{}]", path, index), "a function with its name", tool);
    }
    request->allowed_tools.emplace_back(name);
    ++index;
  }
  return {};
}

// Templates have one name for it or the other.
void SetThinking(bool on, ApiRequest* request) {
  request->template_values["enable_thinking"] = on;
  request->template_values["thinking"] = on;
}

}  // namespace

ApiStatus ParseMessages(const json::value& value, const std::string& path, const RequestLimits&,
                        ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, "a list of messages", value);
  size_t count = value.get_array().size();
  if (count == 0 || count > limits::kMessagesMax) {
    return ApiError{
        400,
        fmt::format("{}: must have 1 to {} messages, got {}", path, limits::kMessagesMax, count),
        path};
  }
  json::value messages = value;
  for (size_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(CheckMessage(messages.get_array()[i], fmt::format("{}[{}]", path, i)));
  }
  Result<json::array> normal = NormalizeMessages(messages);
  if (!normal) return ToApiError(normal.error());
  request->messages = *std::move(normal);
  request->message_paths.clear();
  for (size_t i = 0; i < count; ++i) {
    request->message_paths.push_back(fmt::format("{}[{}]", path, i));
  }
  return {};
}

ApiStatus ParseTools(const json::value& value, const std::string& path, const RequestLimits&,
                     ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, "a list of tools", value);
  const json::array& tools = value.get_array();
  if (tools.size() > limits::kToolsMax) {
    return ApiError{400,
                    fmt::format("{}: has {} tools, at most {} are accepted", path, tools.size(),
                                limits::kToolsMax),
                    path};
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    RETURN_IF_ERROR(CheckTool(tools[i], fmt::format("{}[{}]", path, i)));
  }
  size_t bytes = json::serialize(value).size();
  if (bytes > limits::kToolBytesMax) {
    return ApiError{400,
                    fmt::format("{}: are {} bytes, at most {} are accepted", path, bytes,
                                limits::kToolBytesMax),
                    path};
  }
  request->tools = tools;
  return {};
}

ApiStatus ParseToolChoice(const json::value& value, const std::string& path, const RequestLimits&,
                          ApiRequest* request) {
  constexpr std::string_view kRight =
      "\"auto\", \"none\", \"required\", {\"type\": \"function\", \"function\": {\"name\": …}} or "
      "{\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": …, \"tools\": […]}}";
  request->tool_choice_sent = value;
  if (value == "auto") return {};
  if (value == "none") {
    request->tool_choice = ToolChoice::kNone;
    return {};
  }
  const json::value* type = Member(value, "type");
  if (type != nullptr && *type == "allowed_tools") {
    const json::value* nested = Member(value, "allowed_tools");
    return nested == nullptr ? ParseAllowedTools(value, path, request)
                             : ParseAllowedTools(*nested, path + ".allowed_tools", request);
  }
  request->tool_choice = ToolChoice::kRequired;
  if (value == "required") return {};
  const std::string_view name = ToolName(value);
  if (name.empty() || (type != nullptr && *type != "function")) {
    return WrongType(path, kRight, value);
  }
  request->allowed_tools = {std::string(name)};
  return {};
}

ApiStatus ParseTemplateValues(const json::value& value, const std::string& path,
                              const RequestLimits&, ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, "an object", value);
  const json::object& values = value.get_object();
  if (values.size() > limits::kTemplateKeysMax ||
      json::serialize(value).size() > limits::kTemplateBytesMax) {
    return ApiError{400,
                    fmt::format("{}: must have at most {} keys and {} bytes", path,
                                limits::kTemplateKeysMax, limits::kTemplateBytesMax),
                    path};
  }
  for (const auto& [key, entry] : values) {
    std::string_view name = key;
    if (std::find(kReservedValues.begin(), kReservedValues.end(), name) != kReservedValues.end()) {
      return ApiError{400, fmt::format("{}.{}: is set by the server", path, name),
                      fmt::format("{}.{}", path, name)};
    }
    request->template_values[key] = entry;
  }
  return {};
}

ApiStatus ParseReasoningEffort(const json::value& value, const std::string& path,
                               const RequestLimits&, ApiRequest* request) {
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                           "high", "xhigh",   "max"};
  if (!IsOneOf(value, kEfforts)) {
    return WrongType(path, "none, minimal, low, medium, high, xhigh or max", value);
  }
  request->template_values["reasoning_effort"] = value;
  if (value.get_string() == "none") SetThinking(false, request);
  return {};
}

// Given to the template, as the effort is: it is the model that heeds it.
ApiStatus ParseVerbosity(const json::value& value, const std::string& path, const RequestLimits&,
                         ApiRequest* request) {
  constexpr std::string_view kVerbosities[] = {"low", "medium", "high"};
  if (!IsOneOf(value, kVerbosities)) return WrongType(path, "low, medium or high", value);
  request->template_values["verbosity"] = value;
  return {};
}

// {"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}, {"type": "disabled"}.
ApiStatus ParseThinking(const json::value& value, const std::string& path, const RequestLimits&,
                        ApiRequest* request) {
  const json::object* thinking = value.if_object();
  const json::value* type = thinking == nullptr ? nullptr : thinking->if_contains("type");
  if (type == nullptr || (*type != "enabled" && *type != "disabled" && *type != "adaptive")) {
    return WrongType(path, "an object with a type: enabled, adaptive or disabled", value);
  }
  SetThinking(*type != "disabled", request);
  if (const json::value* display = thinking->if_contains("display");
      display != nullptr && !display->is_null()) {
    if (*display != "omitted" && *display != "summarized") {
      return WrongType(path + ".display", "\"summarized\" or \"omitted\"", *display);
    }
    request->include_reasoning = *display != "omitted";
  }
  const json::value* budget = thinking->if_contains("budget_tokens");
  if (budget == nullptr || budget->is_null()) return {};
  const std::optional<int64_t> tokens = AsInteger(*budget);
  if (!tokens || *tokens < 1) {
    return WrongType(path + ".budget_tokens", "an integer of at least 1", *budget);
  }
  request->thinking_budget = *tokens;
  return {};
}

}  // namespace braid
