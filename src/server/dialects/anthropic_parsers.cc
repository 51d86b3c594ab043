// Parsers of Anthropic's Messages API: system, messages in blocks, tools, tool_choice, thinking.
#include <fmt/core.h>

#include "server/api/conversation.h"
#include "server/api/limits.h"
#include "server/api/parsers.h"

namespace braid {
namespace {

// One block of an assistant's turn.
ApiStatus AddAssistantBlock(const json::object& block, const std::string& path, ChatBuilder* chat) {
  const std::string_view type = StringAt(block, "type");
  if (type == "text") {
    chat->AssistantText(StringAt(block, "text"));
  } else if (type == "thinking") {
    chat->AssistantThought(StringAt(block, "thinking"));
  } else if (type == "tool_use") {
    const json::value input = At(block, "input");
    if (!input.is_object()) return WrongType(path + ".input", "an object", input);
    if (StringAt(block, "name").empty()) {
      return WrongType(path + ".name", "the tool's name", At(block, "name"));
    }
    chat->AssistantCall(StringAt(block, "id"), StringAt(block, "name"), json::serialize(input));
  } else if (type != "redacted_thinking") {
    return ApiError{400,
                    fmt::format("{}: blocks of an assistant are text, thinking or tool_use, got {}",
                                path, JsonExcerpt(At(block, "type"))),
                    path, "unsupported_parameter"};
  }
  return {};
}

// One block of a user's turn; its text is collected, for results of tools come first.
ApiStatus AddUserBlock(const json::object& block, const std::string& path, ChatBuilder* chat,
                       std::string* text) {
  const std::string_view type = StringAt(block, "type");
  if (type == "text") {
    *text += StringAt(block, "text");
    return {};
  }
  if (type != "tool_result") {
    return ApiError{400,
                    fmt::format("{}: blocks of a user are text or tool_result, got {}", path,
                                JsonExcerpt(At(block, "type"))),
                    path, "unsupported_parameter"};
  }
  ASSIGN_OR_RETURN(auto result, TextOfParts(At(block, "content"), "text", path + ".content"));
  chat->ToolResult(StringAt(block, "tool_use_id"), result);
  return {};
}

ApiStatus AddTurn(const json::value& value, const std::string& path, ChatBuilder* chat) {
  if (!value.is_object()) return WrongType(path, "an object with role and content", value);
  const json::object& message = value.get_object();
  const std::string_view role = StringAt(message, "role");
  if (role != "user" && role != "assistant" && role != "system") {
    return WrongType(path + ".role", "\"user\" or \"assistant\"", At(message, "role"));
  }
  const json::value content = At(message, "content");
  const std::string at = path + ".content";
  if (content.is_string()) {
    const std::string_view text = content.get_string();
    role == "user"     ? chat->User(text)
    : role == "system" ? chat->System(text)
                       : chat->AssistantText(text);
    return {};
  }
  if (!content.is_array()) return WrongType(at, "a string or a list of blocks", content);
  if (content.get_array().size() > limits::kPartsMax) {
    return ApiError{400,
                    fmt::format("{}: has {} blocks, at most {} are accepted", at,
                                content.get_array().size(), limits::kPartsMax),
                    at};
  }
  std::string text;
  size_t index = 0;
  for (const json::value& block : content.get_array()) {
    const std::string where = fmt::format("{}[{}]", at, index++);
    if (!block.is_object()) return WrongType(where, "a block with a type", block);
    RETURN_IF_ERROR(role == "assistant" ? AddAssistantBlock(block.get_object(), where, chat)
                                        : AddUserBlock(block.get_object(), where, chat, &text));
  }
  if (!text.empty()) role == "system" ? chat->System(text) : chat->User(text);
  return {};
}

}  // namespace

ApiStatus ParseSystem(const json::value& value, const std::string& path, const RequestLimits&,
                      ApiRequest* request) {
  ASSIGN_OR_RETURN(const std::string text, TextOfParts(value, "text input_text", path));
  request->system = std::move(text);
  return {};
}

ApiStatus ParseTurns(const json::value& value, const std::string& path, const RequestLimits& limits,
                     ApiRequest* request) {
  if (!value.is_array() || value.get_array().empty()) {
    return WrongType(path, "a list of at least one message", value);
  }
  json::array messages;
  std::vector<std::string> paths;
  ChatBuilder chat(&messages, &paths);
  size_t index = 0;
  for (const json::value& turn : value.get_array()) {
    const std::string at = fmt::format("{}[{}]", path, index++);
    chat.At(at);
    RETURN_IF_ERROR(AddTurn(turn, at, &chat));
  }
  RETURN_IF_ERROR(ParseMessages(messages, path, limits, request));
  request->message_paths = std::move(paths);
  return {};
}

ApiStatus ParseAnthropicTools(const json::value& value, const std::string& path,
                              const RequestLimits& limits, ApiRequest* request) {
  // Tools that the API's own servers would run have a type and no schema.
  ASSIGN_OR_RETURN(const json::array tools,
                   ChatTools(value, path, "input_schema", [](const json::object& tool) {
                     return tool.contains("input_schema");
                   }));
  return ParseTools(tools, path, limits, request);
}

// {"format": {"type": "json_schema", "schema": …}, "effort": "low"}
ApiStatus ParseOutputConfig(const json::value& value, const std::string& path,
                            const RequestLimits& limits, ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, "an object with a format or an effort", value);
  const json::value effort = At(value.get_object(), "effort");
  if (!effort.is_null()) {
    RETURN_IF_ERROR(ParseReasoningEffort(effort, path + ".effort", limits, request));
  }
  const json::value format = At(value.get_object(), "format");
  if (format.is_null()) return {};
  return ParseOutputFormat(format, path + ".format", limits, request);
}

// {"type": "json_schema", "schema": …}
ApiStatus ParseOutputFormat(const json::value& value, const std::string& path,
                            const RequestLimits& limits, ApiRequest* request) {
  const json::object* format = value.if_object();
  if (format == nullptr || StringAt(*format, "type") != "json_schema") {
    return WrongType(path, "an object with the type json_schema and a schema", value);
  }
  return ParseResponseFormat(value, path, limits, request);
}

ApiStatus ParseAnthropicToolChoice(const json::value& value, const std::string& path,
                                   const RequestLimits&, ApiRequest* request) {
  const json::object* choice = value.if_object();
  const std::string_view type = choice == nullptr ? std::string_view() : StringAt(*choice, "type");
  if (type == "none") {
    request->tool_choice = ToolChoice::kNone;
  } else if (type == "any" || type == "tool") {
    request->tool_choice = ToolChoice::kRequired;
    if (type == "tool") {
      const std::string_view name = StringAt(*choice, "name");
      if (name.empty()) {
        return WrongType(path + ".name", "the tool's name", At(*choice, "name"));
      }
      request->allowed_tools = {std::string(name)};
    }
  } else if (type != "auto") {
    return WrongType(path, "an object with a type: auto, any, tool or none", value);
  }
  if (const json::value* single = choice->if_contains("disable_parallel_tool_use")) {
    if (!single->is_bool()) {
      return WrongType(path + ".disable_parallel_tool_use", "true or false", *single);
    }
    request->parallel_tool_calls = !single->get_bool();
  }
  return {};
}

}  // namespace braid
