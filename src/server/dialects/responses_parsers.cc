// Parsers of OpenAI's Responses API: input items, flat tools, text format, reasoning.
#include <fmt/core.h>

#include <algorithm>

#include "server/api/conversation.h"
#include "server/api/limits.h"
#include "server/api/parsers.h"
#include "server/dialects/responses_input.h"

namespace braid {
namespace {

constexpr std::string_view kTextParts = "input_text output_text text reasoning_text summary_text";

ApiStatus AddMessage(const json::object& item, const std::string& path, ChatBuilder* chat) {
  ASSIGN_OR_RETURN(auto content, TextOfParts(At(item, "content"), kTextParts, path + ".content"));
  const std::string& text = content;
  const std::string_view role = StringAt(item, "role");
  if (role == "assistant") {
    chat->AssistantText(text);
  } else if (role == "user") {
    chat->User(text);
  } else if (role == "system" || role == "developer") {
    chat->System(text);
  } else {
    return WrongType(path + ".role", "one of user, assistant, system, developer", At(item, "role"));
  }
  return {};
}

// The thought is in `content`; without it the summary stands for it.
ApiStatus AddReasoning(const json::object& item, const std::string& path, ChatBuilder* chat) {
  for (const char* key : {"content", "summary"}) {
    ASSIGN_OR_RETURN(const std::string text,
                     TextOfParts(At(item, key), kTextParts, fmt::format("{}.{}", path, key)));
    if (text.empty()) continue;
    chat->AssistantThought(text);
    break;
  }
  return {};
}

ApiStatus AddItem(const json::object& item, const std::string& path, ChatBuilder* chat) {
  const std::string_view type = StringAt(item, "type");
  if (type == "message" || (type.empty() && item.contains("role"))) {
    return AddMessage(item, path, chat);
  }
  if (type == "reasoning") return AddReasoning(item, path, chat);
  if (type == "function_call") {
    const std::string_view name = StringAt(item, "name");
    if (name.empty()) return WrongType(path + ".name", "the tool's name", At(item, "name"));
    chat->AssistantCall(StringAt(item, "call_id"), name, StringAt(item, "arguments"));
    return {};
  }
  if (type == "function_call_output") {
    ASSIGN_OR_RETURN(auto output, TextOfParts(At(item, "output"), kTextParts, path + ".output"));
    chat->ToolResult(StringAt(item, "call_id"), output);
    return {};
  }
  return ApiError{400,
                  fmt::format("{}.type: must be message, reasoning, function_call, "
                              "function_call_output or item_reference, got {}",
                              path, JsonExcerpt(At(item, "type"))),
                  path + ".type", "unsupported_parameter"};
}

// {"type": "item_reference", "id": …}, of which the type may be left out.
bool IsReference(const json::object& item) {
  const json::value type = At(item, "type");
  return type == "item_reference" ||
         (type.is_null() && item.contains("id") && !item.contains("role"));
}

}  // namespace

ApiStatus ParseInput(const json::value& value, const std::string& path, const RequestLimits& limits,
                     ApiRequest* request) {
  if (value.is_string()) {
    request->input_items.push_back({.value = {{"role", "user"}, {"content", value}}});
    return {};
  }
  if (!value.is_array() || value.get_array().empty()) {
    return WrongType(path, "a string or a list of at least one item", value);
  }
  if (value.get_array().size() > limits::kMessagesMax) {
    return ApiError{400,
                    fmt::format("{}: must have 1 to {} items, got {}", path, limits::kMessagesMax,
                                value.get_array().size()),
                    path};
  }
  for (const json::value& item : value.get_array()) {
    const std::string at = fmt::format("{}[{}]", path, request->input_items.size());
    if (!item.is_object()) return WrongType(at, "an item: an object", item);
    if (!IsReference(item.get_object())) {
      request->input_items.push_back({.value = item.get_object()});
      continue;
    }
    RETURN_IF_ERROR(AddReferenced(limits.responses, item.get_object(), at, request));
  }
  return {};
}

ApiStatus ParsePreviousResponse(const json::value& value, const std::string& path,
                                const RequestLimits& limits, ApiRequest* request) {
  if (!value.is_string()) return WrongType(path, "the id of a stored response", value);
  request->previous_response_id = value.get_string();
  return AddPrevious(limits.responses, path, request);
}

ApiStatus MessagesOfItems(const RequestLimits& limits, ApiRequest* request) {
  RETURN_IF_ERROR(CheckReferences(*request));
  json::array messages;
  std::vector<std::string> paths;
  ChatBuilder chat(&messages, &paths);
  chat.At("previous_response_id");
  for (const InputItem& item : request->previous_items) {
    RETURN_IF_ERROR(AddItem(item.value, "previous_response_id", &chat));
  }
  for (size_t i = 0; i < request->input_items.size(); ++i) {
    const std::string at = fmt::format("input[{}]", i);
    chat.At(at);
    RETURN_IF_ERROR(AddItem(request->input_items[i].value, at, &chat));
  }
  RETURN_IF_ERROR(ParseMessages(messages, "input", limits, request));
  request->message_paths = std::move(paths);
  return {};
}

ApiStatus ParseResponsesTools(const json::value& value, const std::string& path,
                              const RequestLimits& limits, ApiRequest* request) {
  ASSIGN_OR_RETURN(const json::array tools,
                   ChatTools(value, path, "parameters", [](const json::object& tool) {
                     return StringAt(tool, "type") == "function";
                   }));
  return ParseTools(tools, path, limits, request);
}

// Additional output. Most of it belongs to server-side tools, which this server does not have.
ApiStatus ParseInclude(const json::value& value, const std::string& path, const RequestLimits&,
                       ApiRequest*) {
  constexpr std::string_view kNothingToAdd[] = {"reasoning.encrypted_content",
                                                "web_search_call.action.sources",
                                                "web_search_call.results",
                                                "code_interpreter_call.outputs",
                                                "computer_call_output.output.image_url",
                                                "file_search_call.results",
                                                "message.input_image.image_url"};
  if (!value.is_array()) return WrongType(path, "a list of names", value);
  size_t index = 0;
  for (const json::value& name : value.get_array()) {
    const std::string at = fmt::format("{}[{}]", path, index++);
    if (std::any_of(std::begin(kNothingToAdd), std::end(kNothingToAdd),
                    [&](std::string_view known) { return name == json::value(known); })) {
      continue;
    }
    if (name == "message.output_text.logprobs") {
      return ApiError{400, at + ": is not supported; use /v1/chat/completions", at,
                      "unsupported_parameter"};
    }
    return WrongType(at, "a name that the API knows, \"reasoning.encrypted_content\"", name);
  }
  return {};
}

// {"format": {"type": "json_schema", "name": …, "schema": …}, "verbosity": …}
ApiStatus ParseTextOptions(const json::value& value, const std::string& path,
                           const RequestLimits& limits, ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, "an object with a format", value);
  const json::object& options = value.get_object();
  if (const json::value* verbosity = options.if_contains("verbosity");
      verbosity != nullptr && !verbosity->is_null()) {
    RETURN_IF_ERROR(ParseVerbosity(*verbosity, path + ".verbosity", limits, request));
  }
  const json::value* format = options.if_contains("format");
  if (format == nullptr || format->is_null()) return {};
  return ParseResponseFormat(*format, path + ".format", limits, request);
}

// {"effort": "low", "summary": …}
ApiStatus ParseReasoningOptions(const json::value& value, const std::string& path,
                                const RequestLimits& limits, ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, "an object with an effort", value);
  const json::value* effort = value.get_object().if_contains("effort");
  if (effort == nullptr || effort->is_null()) return {};
  return ParseReasoningEffort(*effort, path + ".effort", limits, request);
}

}  // namespace braid
