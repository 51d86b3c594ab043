// Consecutive assistant items become one message.
#include "server/api/conversation.h"

#include <fmt/core.h>

#include "server/api/limits.h"
#include "server/api/parsers.h"

namespace braid {

void ChatBuilder::Add(json::object message) {
  messages_.push_back(std::move(message));
  paths_.push_back(path_);
}

void ChatBuilder::System(std::string_view text) { Add({{"role", "system"}, {"content", text}}); }

void ChatBuilder::User(std::string_view text) { Add({{"role", "user"}, {"content", text}}); }

void ChatBuilder::ToolResult(std::string_view call_id, std::string_view text) {
  Add({{"role", "tool"}, {"tool_call_id", call_id}, {"content", text}});
}

json::object& ChatBuilder::Assistant() {
  if (messages_.empty() || messages_.back().at("role").as_string() != "assistant") {
    Add({{"role", "assistant"}, {"content", ""}});
  }
  return messages_.back().as_object();
}

void ChatBuilder::Append(std::string_view key, std::string_view text) {
  json::value& value = Assistant()[key];
  std::string all = value.is_string() ? std::string(value.get_string()) : std::string();
  all += text;
  value = all;
}

void ChatBuilder::AssistantText(std::string_view text) { Append("content", text); }

void ChatBuilder::AssistantThought(std::string_view text) { Append("reasoning_content", text); }

void ChatBuilder::AssistantCall(std::string_view call_id, std::string_view name,
                                std::string_view arguments) {
  json::value& calls = Assistant()["tool_calls"];
  if (!calls.is_array()) calls = json::array{};
  calls.get_array().push_back(
      json::object{{"id", call_id},
                   {"type", "function"},
                   {"function", json::object{{"name", name}, {"arguments", arguments}}}});
}

void JoinLeadingSystem(const std::string& system, std::string_view path, json::array* messages,
                       std::vector<std::string>* paths) {
  size_t count = 0;
  while (count < messages->size() && messages->at(count).at("role") == "system") ++count;
  if (system.empty() && count < 2) return;
  std::string text = system;
  for (size_t i = 0; i < count; ++i) {
    const json::value* content = messages->at(i).as_object().if_contains("content");
    if (content == nullptr || !content->is_string() || content->get_string().empty()) continue;
    text += text.empty() ? "" : "\n\n";
    text += content->get_string();
  }
  if (count == 0) {
    messages->insert(messages->begin(), json::object{{"role", "system"}});
    paths->insert(paths->begin(), std::string(path));
  } else {
    messages->erase(messages->begin() + 1, messages->begin() + static_cast<ptrdiff_t>(count));
    paths->erase(paths->begin() + 1, paths->begin() + static_cast<ptrdiff_t>(count));
  }
  messages->front().as_object()["content"] = text;
}

namespace {

json::value ChatTool(const json::object& flat, std::string_view schema) {
  json::object function;
  for (std::string_view key : {"name", "description", "strict"}) {
    if (const json::value* value = flat.if_contains(key); value != nullptr && !value->is_null()) {
      function[key] = *value;
    }
  }
  if (const json::value* parameters = flat.if_contains(schema);
      parameters != nullptr && !parameters->is_null()) {
    function["parameters"] = *parameters;
  }
  return json::object{{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace

Result<json::array, ApiError> ChatTools(const json::value& value, const std::string& path,
                                        std::string_view schema,
                                        bool (*ours)(const json::object& tool)) {
  if (!value.is_array()) return WrongType(path, "a list of tools", value);
  json::array tools;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const json::value& tool = value.get_array()[i];
    if (!tool.is_object()) return WrongType(fmt::format("{}[{}]", path, i), "an object", tool);
    if (ours(tool.get_object())) tools.push_back(ChatTool(tool.get_object(), schema));
  }
  return tools;
}

Result<std::string, ApiError> TextOfParts(const json::value& content, std::string_view types,
                                          const std::string& path) {
  if (content.is_string()) return std::string(content.get_string());
  if (content.is_null()) return std::string();
  if (!content.is_array()) return WrongType(path, "a string or a list of parts", content);
  const json::array& parts = content.get_array();
  if (parts.size() > limits::kPartsMax) {
    return ApiError{400,
                    fmt::format("{}: has {} parts, at most {} are accepted", path, parts.size(),
                                limits::kPartsMax),
                    path};
  }
  const std::string known = fmt::format(" {} ", types);
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    const json::object* part = parts[i].if_object();
    const json::value* type = part == nullptr ? nullptr : part->if_contains("type");
    if (type == nullptr || !type->is_string()) {
      return WrongType(at, "an object with a type", parts[i]);
    }
    const json::value* piece = part->if_contains("text");
    if (known.find(fmt::format(" {} ", std::string_view(type->get_string()))) ==
        std::string::npos) {
      return ApiError{400,
                      fmt::format("{}: only text is supported, got {}", at, JsonExcerpt(*type)), at,
                      "unsupported_parameter"};
    }
    if (piece == nullptr || !piece->is_string())
      return WrongType(at, "a part with a text", parts[i]);
    text += piece->get_string();
  }
  return text;
}

}  // namespace braid
