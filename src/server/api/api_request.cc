// Bodies to requests: JSON limits, the walk over the field table, and the rules between fields.
#include "server/api/api_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text/cut_text.h"
#include "server/api/conversation.h"
#include "server/api/fields.h"
#include "server/api/limits.h"
#include "server/api/parsers.h"

namespace braid {
namespace {

// Counts values and looks at keys without recursion: the depth is bounded, the breadth is not.
ApiStatus CheckShape(const json::value& body) {
  std::vector<const json::value*> open{&body};
  int64_t values = 0;
  while (!open.empty()) {
    const json::value& value = *open.back();
    open.pop_back();
    if (++values > limits::kJsonValuesMax) {
      return ApiError{400,
                      fmt::format("the body has more than {} JSON values", limits::kJsonValuesMax)};
    }
    if (value.is_array()) {
      for (const json::value& element : value.get_array()) open.push_back(&element);
    } else if (value.is_object()) {
      for (const auto& [key, element] : value.get_object()) {
        if (key.size() > limits::kJsonKeyBytesMax) {
          return ApiError{
              400, fmt::format("a JSON key is longer than {} bytes", limits::kJsonKeyBytesMax)};
        }
        open.push_back(&element);
      }
    }
  }
  return {};
}

std::optional<double> AsNumber(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_double() && std::isfinite(value.get_double())) return value.get_double();
  return std::nullopt;
}

// Whether a value of a field that is not supported asks for nothing.
bool AsksForNothing(const json::value& value, std::string_view neutral) {
  if (!neutral.empty()) {
    const json::value list = *ParseJson(neutral, "the field table");
    return std::find(list.get_array().begin(), list.get_array().end(), value) !=
           list.get_array().end();
  }
  if (value.is_bool()) return !value.get_bool();
  if (value.is_string()) return value.get_string().empty();
  if (value.is_array()) return value.get_array().empty();
  if (value.is_object()) return value.get_object().empty();
  return AsNumber(value) == 0.0;
}

// Applies one row to one value. A struct so that each kind of rule is an overload.
struct FieldReader {
  const json::value& value;
  const std::string& path;
  const RequestLimits& limits;
  ApiRequest* request;

  ApiStatus operator()(const NumberRule& rule) const {
    std::string right = fmt::format("a number {} {} and at most {}",
                                    rule.above_min ? "above" : "of at least", rule.min, rule.max);
    std::optional<double> number = AsNumber(value);
    if (!number || *number < rule.min || *number > rule.max ||
        (rule.above_min && *number == rule.min)) {
      return WrongType(path, right, value);
    }
    request->*rule.member = *number;
    return {};
  }

  ApiStatus operator()(const IntegerRule& rule) const {
    const int64_t max = MaxOf(rule, limits);
    const std::optional<int64_t> integer = AsInteger(value);
    if (!integer || *integer < rule.min || *integer > max) {
      return WrongType(path, fmt::format("an integer from {} to {}", rule.min, max), value);
    }
    request->*rule.member = *integer;
    return {};
  }

  ApiStatus operator()(const FlagRule& rule) const {
    if (!value.is_bool()) return WrongType(path, "true or false", value);
    request->*rule.member = value.get_bool();
    return {};
  }

  ApiStatus operator()(const ParseRule& rule) const {
    return rule.parse(value, path, limits, request);
  }

  ApiStatus operator()(const MemberRule&) const { return {}; }

  ApiStatus operator()(const HarmlessRule&) const { return {}; }

  ApiStatus operator()(const RefusedRule& rule) const {
    if (AsksForNothing(value, rule.neutral)) return {};
    return ApiError{400, fmt::format("{}: is not supported: {}", path, rule.instead), path,
                    "unsupported_parameter"};
  }
};

ApiError UnknownField(std::string_view path) {
  const std::string shown(CutText(path, limits::kShownBytesMax));
  return {400, fmt::format("{}: unknown field; leave it out, or see /openapi.json", shown), shown,
          "unknown_parameter"};
}

// Applies the rows of a field and of its members to its value. Null is the same as leaving it out.
ApiStatus ReadField(const std::string& path, const json::value& value, const RequestLimits& limits,
                    ApiRequest* request) {
  if (value.is_null()) return {};
  const Field* field = FindField(path, request->endpoint);
  if (field == nullptr) return UnknownField(path);
  if (value.is_object() && HasMembers(*field, request->endpoint)) {
    for (const auto& [key, member] : value.get_object()) {
      const std::string at = fmt::format("{}.{}", path, std::string_view(key));
      RETURN_IF_ERROR(ReadField(at, member, limits, request));
    }
  }
  return std::visit(FieldReader{value, path, limits, request}, field->rule);
}

ApiStatus ReadFields(const json::object& body, const RequestLimits& limits, ApiRequest* request) {
  for (const auto& [key, value] : body) {
    const std::string path(key);
    if (path.find('.') != std::string::npos) return UnknownField(path);
    RETURN_IF_ERROR(ReadField(path, value, limits, request));
  }
  return {};
}

ApiError Missing(std::string_view field, std::string_view right) {
  return {400, fmt::format("{}: is missing; it must be {}", field, right), std::string(field)};
}

ApiStatus CheckPresence(const ApiRequest& request, const json::object& body) {
  bool has_messages = !request.messages.empty();
  if (request.endpoint == kMessages && !request.max_tokens) {
    return Missing("max_tokens", "the largest number of tokens of the answer");
  }
  switch (request.endpoint) {
    case kChat:
    case kApplyTemplate:
    case kMessages:
    case kCountTokens:
      if (!has_messages) return Missing("messages", "a list of at least one message");
      break;
    case kResponses:
      if (!has_messages) return Missing("input", "a string or a list of items");
      break;
    case kCompletions:
      if (request.prompts.empty())
        return Missing("prompt", "a string, token ids or a list of them");
      break;
    case kTokenize:
      if (request.prompts.empty() && !has_messages) return Missing("prompt", "a string");
      if (!request.prompts.empty() && has_messages) {
        return ApiError{400, "messages: cannot be combined with prompt; send one of them",
                        "messages"};
      }
      if (request.prompts.size() > 1 ||
          (request.prompts.size() == 1 &&
           !std::holds_alternative<std::string>(request.prompts[0]))) {
        const char* sent = At(body, "prompt").is_null() ? "input_ids" : "prompt";
        return WrongType(sent, "a string", At(body, sent));
      }
      break;
    case kParseCalls:
    case kSeparateReasoning:
      if (!body.contains("text")) return Missing("text", "a string");
      break;
    case kAbort:
      if (request.request_id.empty() && !request.abort_all.value_or(false)) {
        return Missing("rid", "the id of a request, or abort_all true");
      }
      break;
    case kPause:
    case kFlush:
      break;
    case kDetokenize:
      if (!body.contains("tokens")) return Missing("tokens", "a list of token ids");
      break;
  }
  return {};
}

// A forced tool must exist, and what is constrained must be able to end.
ApiStatus CheckConstraints(const ApiRequest& request) {
  const bool forced = request.tool_choice == ToolChoice::kRequired;
  if (forced && request.tools.empty()) {
    return ApiError{400, "tool_choice: needs tools to choose from", "tool_choice"};
  }
  for (const std::string& name : request.allowed_tools) {
    const bool known =
        std::any_of(request.tools.begin(), request.tools.end(), [&](const json::value& tool) {
          return tool.at("function").at("name").as_string() == name;
        });
    if (known) continue;
    return ApiError{400,
                    fmt::format("tool_choice: there is no tool named \"{}\" in tools",
                                CutText(name, limits::kShownBytesMax)),
                    "tool_choice"};
  }
  if (!forced && !request.grammar) return {};
  if (forced && request.grammar) {
    return ApiError{400,
                    fmt::format("{}: cannot be combined with a tool_choice that forces a call",
                                request.grammar->path),
                    request.grammar->path};
  }
  if (request.ignore_eos.value_or(false) || request.min_tokens.value_or(0) > 0) {
    std::string name = request.ignore_eos.value_or(false) ? "ignore_eos" : "min_tokens";
    return ApiError{400, name + ": constrained output ends where its grammar does", name};
  }
  return {};
}

ApiStatus CheckTogether(const ApiRequest& request, const RequestLimits& limits) {
  auto max_tokens =
      request.max_completion_tokens ? request.max_completion_tokens : request.max_tokens;
  std::string max_name = request.max_completion_tokens ? "max_completion_tokens" : "max_tokens";
  bool reads_prompt = request.echo.value_or(false) || request.prompt_logprobs;
  if (max_tokens == 0 && !reads_prompt) {
    return ApiError{400, max_name + ": must be at least 1, unless echo or prompt_logprobs is set",
                    max_name};
  }
  if (max_tokens && request.min_tokens.value_or(0) > *max_tokens) {
    return ApiError{400,
                    fmt::format("min_tokens: must be at most {} ({}), got {}", max_name,
                                *max_tokens, *request.min_tokens),
                    "min_tokens"};
  }
  const int64_t prompts = static_cast<int64_t>(request.prompts.size());
  const int64_t answers = prompts * request.n.value_or(1);
  if (answers > limits.answers_max) {
    return ApiError{400,
                    fmt::format("prompt: {} prompts times n are {} answers, at most {} are "
                                "made in one request",
                                prompts, answers, limits.answers_max),
                    "prompt"};
  }
  RETURN_IF_ERROR(CheckConstraints(request));
  if (request.endpoint == kChat && request.logprobs && !request.wants_logprobs.value_or(false)) {
    return ApiError{400, "top_logprobs: needs logprobs to be true", "top_logprobs"};
  }
  if (request.include_usage && !request.stream.value_or(false)) {
    return ApiError{400, "stream_options: needs stream to be true", "stream_options"};
  }
  if (request.continue_final_message.value_or(false)) {
    if (request.add_generation_prompt.value_or(false)) {
      return ApiError{400, "continue_final_message: cannot be combined with add_generation_prompt",
                      "continue_final_message"};
    }
    if (!request.messages.empty() &&
        request.messages.back().as_object().at("role") != "assistant") {
      return ApiError{400, "continue_final_message: the last message must be the assistant's",
                      "continue_final_message"};
    }
    if (!request.messages.empty() && request.messages.back().as_object().contains("tool_calls")) {
      return ApiError{400, "continue_final_message: the last message has tool calls",
                      "continue_final_message"};
    }
  }
  return {};
}

// What templates call it.
constexpr const char* kThinkingNames[] = {"enable_thinking", "thinking"};

// Whether the conversation ends with a text of the assistant.
bool EndsWithAnswer(const json::array& messages) {
  const json::object& last = messages.back().as_object();
  const json::value* content = last.if_contains("content");
  if (last.at("role") != "assistant" || last.contains("tool_calls") || content == nullptr ||
      !content->is_string()) {
    return false;
  }
  const std::string_view text = content->get_string();
  return text.find_first_not_of(" \t\r\n") != std::string_view::npos;
}

}  // namespace

Result<ApiRequest, ApiError> ParseApiRequest(Endpoint endpoint, std::string_view body,
                                             const RequestLimits& limits) {
  Result<json::value> parsed =
      ParseJson(body, "request body",
                {.depth_max = limits::kJsonDepthMax, .bytes_max = limits::kBodyBytesMax});
  if (!parsed) return ToApiError(parsed.error());
  if (!parsed->is_object()) {
    return ApiError{400,
                    fmt::format("the body must be a JSON object, got {}", JsonKindName(*parsed))};
  }
  RETURN_IF_ERROR(CheckShape(*parsed));
  ApiRequest request;
  request.endpoint = endpoint;
  const json::object& object = parsed->get_object();
  RETURN_IF_ERROR(ReadFields(object, limits, &request));
  if (!request.input_items.empty()) {
    RETURN_IF_ERROR(MessagesOfItems(limits, &request));
  }
  RETURN_IF_ERROR(CheckPresence(request, object));
  RETURN_IF_ERROR(CheckTogether(request, limits));
  JoinLeadingSystem(request.system, IsAnthropic(endpoint) ? "system" : "instructions",
                    &request.messages, &request.message_paths);
  json::object& values = request.template_values;
  // Anthropic's models think when they are asked to.
  if (IsAnthropic(endpoint) && !values.contains("enable_thinking") &&
      !values.contains("thinking")) {
    request.enable_thinking = false;
  }
  if (request.enable_thinking) {
    for (const char* name : kThinkingNames) {
      values.emplace(name, *request.enable_thinking);
    }
  }
  // Anthropic's API continues such a text; it has no field for that. Thinking comes before a text,
  // and a format holds for a whole one, so these begin another.
  const bool thinks = std::ranges::any_of(kThinkingNames, [&](const char* name) {
    return values.contains(name) && values.at(name) == json::value(true);
  });
  if (IsAnthropic(endpoint) && !thinks && !request.grammar && EndsWithAnswer(request.messages)) {
    request.continue_final_message = true;
  }
  return request;
}

}  // namespace braid
