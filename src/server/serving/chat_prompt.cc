// Templates fail with messages of their own. To find the message at fault, the conversation is
// rendered again without likely causes.
#include "server/serving/chat_prompt.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/system/secure_random.h"

namespace braid {
namespace {

constexpr size_t kMarkBytes = 16;  // too many to guess: no message contains the mark

std::string_view ContentOf(const json::value& message) {
  const json::value* content = message.as_object().if_contains("content");
  return content != nullptr && content->is_string() ? std::string_view(content->get_string())
                                                    : std::string_view();
}

bool HasCalls(const json::value& message) {
  const json::value* calls = message.as_object().if_contains("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->get_array().empty();
}

bool IsSystem(const json::value& message) { return message.at("role") == "system"; }

// What the trim of a template removes: the white space of Python's strip, in UTF-8.
constexpr std::string_view kTemplateBlanks[] = {
    "\x09",         "\x0a",         "\x0b",         "\x0c",         "\x0d",         "\x1c",
    "\x1d",         "\x1e",         "\x1f",         " ",            "\xc2\x85",     "\xc2\xa0",
    "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84",
    "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a",
    "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

std::string_view WithoutBlanksAfter(std::string_view text) {
  const auto ends = [&](std::string_view blank) { return text.ends_with(blank); };
  while (true) {
    const auto* blank = std::ranges::find_if(kTemplateBlanks, ends);
    if (blank == std::end(kTemplateBlanks)) return text;
    text.remove_suffix(blank->size());
  }
}

std::string_view TrimmedAsInTemplates(std::string_view text) {
  const auto begins = [&](std::string_view blank) { return text.starts_with(blank); };
  while (true) {
    const auto* blank = std::ranges::find_if(kTemplateBlanks, begins);
    if (blank == std::end(kTemplateBlanks)) return WithoutBlanksAfter(text);
    text.remove_prefix(blank->size());
  }
}

// Puts `mark` right after the last message's content, without the blanks that end it.
void MarkLastMessage(std::string_view mark, json::value* message) {
  std::string content(WithoutBlanksAfter(ContentOf(*message)));
  message->as_object()["content"] = content.append(mark);
}

// Ends the rendered text right after the last message's content, so that the answer continues it.
// The content itself may occur again in the tags after it; the mark does not.
Result<std::string, ApiError> CutAfterLastMessage(std::string text, std::string_view mark,
                                                  const ApiRequest& request) {
  const std::string_view content = FinalContent(request);
  const size_t end = text.rfind(mark);
  const std::string_view before =
      WithoutBlanksAfter(std::string_view(text).substr(0, end == std::string::npos ? 0 : end));
  if (content.empty() || !before.ends_with(content)) {
    const std::string field = IsAnthropic(request.endpoint) ? request.message_paths.back()
                                                            : "continue_final_message";
    return ApiError{
        400, field + ": the chat template changes the content of the last message", field};
  }
  text.resize(before.size());
  return text;
}

ApiError AtMessage(const ApiRequest& request, size_t index, const std::string& what) {
  const std::string& path = request.message_paths.at(index);
  return {400, fmt::format("{}: {}", path, what), path};
}

// The first message that is a system's and not the first one; the number of messages if none is.
size_t LateSystem(const json::array& messages) {
  size_t index = 1;
  while (index < messages.size() && !IsSystem(messages[index])) ++index;
  return index;
}

// The arguments of a message's calls.
std::vector<json::value*> ArgumentsOf(json::value* message) {
  std::vector<json::value*> all;
  json::value* calls = message->as_object().if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return all;
  for (json::value& call : calls->get_array()) {
    json::value* function = call.as_object().if_contains("function");
    json::value* arguments =
        function == nullptr ? nullptr : function->as_object().if_contains("arguments");
    if (arguments != nullptr) all.push_back(arguments);
  }
  return all;
}

// Replaces arguments of calls that are no JSON object by an empty one; false: there are none.
bool ClearTextArguments(json::value* message) {
  bool any = false;
  for (json::value* arguments : ArgumentsOf(message)) {
    if (!arguments->is_string()) continue;
    *arguments = json::object{};
    any = true;
  }
  return any;
}

// Replaces arguments that are a JSON object by the text that templates make of it; false: there
// are none.
bool WriteArguments(json::array* messages) {
  const Result<ChatTemplate> writer = ChatTemplate::FromSource("{{ arguments | tojson }}", {});
  bool any = false;
  for (json::value& message : *messages) {
    for (json::value* arguments : ArgumentsOf(&message)) {
      if (!writer || !arguments->is_object()) continue;
      const Result<std::string> text = writer->Render(json::object{{"arguments", *arguments}});
      if (!text) continue;
      *arguments = json::string(*text);
      any = true;
    }
  }
  return any;
}

// Renders; some published templates add arguments to a text, which fails for an object.
Result<std::string> RenderEitherWay(const ChatTemplate& chat, json::object* values) {
  Result<std::string> text = chat.Render(*values);
  if (text || !WriteArguments(&values->at("messages").as_array())) return text;
  Result<std::string> again = chat.Render(*values);
  if (again) text = std::move(again);
  return text;
}

enum class Written { kError, kNoCall, kCallOnly, kTextAndCall };

// What the template writes of an answer with a text and a call, in one message or `apart`: the
// call then comes after the text in a message with the content `no_text`.
Written TryCall(const ChatTemplate& chat, json::object values, bool apart,
                const json::value& no_text) {
  const std::string text = SecureRandomHex(kMarkBytes), call = SecureRandomHex(kMarkBytes);
  const json::object function{{"name", call}, {"arguments", json::object{{call, call}}}};
  const json::object sent{{"id", call}, {"type", "function"}, {"function", function}};
  json::array messages;
  messages.push_back(json::object{{"role", "user"}, {"content", "a"}});
  if (apart) messages.push_back(json::object{{"role", "assistant"}, {"content", text}});
  messages.push_back(json::object{{"role", "assistant"},
                                  {"content", apart ? no_text : json::value(text)},
                                  {"tool_calls", json::array{sent}}});
  values["messages"] = std::move(messages);
  const Result<std::string> rendered = RenderEitherWay(chat, &values);
  if (!rendered) return Written::kError;
  const size_t call_at = rendered->find(call), text_at = rendered->find(text);
  if (call_at == std::string::npos) return Written::kNoCall;
  const bool both = text_at != std::string::npos && (!apart || text_at < call_at);
  return both ? Written::kTextAndCall : Written::kCallOnly;
}

// The form in which a template writes messages with calls.
struct CallForm {
  bool written = true;       // false: in none
  bool apart = false;        // a text beside calls is a message of its own, before them
  json::value no_text = "";  // the content of calls without a text
};

// Some published templates write calls only where the content is none. Others would print "None",
// so an empty text comes first.
CallForm FormOfCalls(const ChatTemplate& chat, const json::object& values) {
  const Written together = TryCall(chat, values, false, "");
  if (together == Written::kError || together == Written::kTextAndCall) return {};
  for (const json::value& no_text : {json::value(""), json::value(nullptr)}) {
    if (TryCall(chat, values, true, no_text) == Written::kTextAndCall) {
      return {.apart = true, .no_text = no_text};
    }
  }
  return {.written = together == Written::kCallOnly};
}

// Brings messages with calls into the form that the template writes. Clients send calls without a
// text with null, an empty text or no content at all.
ApiStatus ArrangeCalls(const ChatTemplate& chat, const ApiRequest& request,
                       const json::object& values, json::array* messages) {
  const auto first = std::ranges::find_if(*messages, HasCalls);
  if (first == messages->end()) return {};
  const CallForm form = FormOfCalls(chat, values);
  if (!form.written) {
    return AtMessage(request, static_cast<size_t>(first - messages->begin()),
                     "this model's chat template drops tool calls; send them as text in content");
  }
  json::array arranged;
  for (json::value& message : *messages) {
    json::object& fields = message.as_object();
    if (HasCalls(message)) {
      const std::string_view content = ContentOf(message);
      if (form.apart && !TrimmedAsInTemplates(content).empty()) {
        arranged.push_back(message);
        arranged.back().as_object().erase("tool_calls");
        fields.erase("reasoning_content");
        fields.erase("reasoning");
      }
      if (form.apart || content.empty()) fields["content"] = form.no_text;
    }
    arranged.push_back(std::move(message));
  }
  *messages = std::move(arranged);
  return {};
}

bool Renders(const ChatTemplate& chat, json::object values, json::array messages) {
  values["messages"] = std::move(messages);
  return chat.Render(values).ok();
}

// Why rendering failed: a late system message, arguments that are not JSON, or the template's own
// message.
ApiError WhyNot(const ChatTemplate& chat, const ApiRequest& request, const json::object& values,
                const Error& error) {
  const json::array& messages = request.messages;
  if (const size_t late = LateSystem(messages); late < messages.size()) {
    json::array others;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (i == 0 || !IsSystem(messages[i])) others.push_back(messages[i]);
    }
    if (Renders(chat, values, std::move(others))) {
      return AtMessage(
          request, late,
          fmt::format("this model's chat template accepts system messages at the "
                      "beginning only; move it there, or send it as a user message ({})",
                      error.message));
    }
  }
  json::array cleared = messages;
  size_t first = messages.size();
  for (size_t i = messages.size(); i-- > 0;) {
    if (ClearTextArguments(&cleared[i])) first = i;
  }
  if (first < messages.size() && Renders(chat, values, std::move(cleared))) {
    return AtMessage(request, first,
                     fmt::format("the arguments of a tool call are not a JSON object, and this "
                                 "model's chat template cannot write them as text; send an object, "
                                 "or leave the call out ({})",
                                 error.message));
  }
  ApiError refusal = ToApiError(error);
  if (refusal.param.empty()) refusal.param = "messages";
  return refusal;
}

bool Holds(std::string_view text, const json::value& message) {
  return text.find(TrimmedAsInTemplates(ContentOf(message))) != std::string_view::npos;
}

// A template may drop messages that it does not expect; instructions must not get lost silently.
ApiStatus CheckSystemIsThere(const ApiRequest& request, std::string_view text) {
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const json::value& message = request.messages[i];
    if (!IsSystem(message) || Holds(text, message)) continue;
    return AtMessage(request, i,
                     i == 0 ? "this model's chat template drops system messages; send it as a "
                              "user message"
                            : "this model's chat template drops system messages that are not at "
                              "the beginning; move it there, or send it as a user message");
  }
  return {};
}

// A template may not write tools. Then the model hears of them only where a message names them.
ApiStatus CheckToolsAreThere(const ApiRequest& request, std::string_view text) {
  if (!OffersTools(request)) return {};
  for (const json::value& tool : request.tools) {
    const std::string_view name = tool.at("function").at("name").as_string();
    if (text.find(name) != std::string_view::npos) continue;
    return ApiError{400,
                    fmt::format("tools: this model's chat template does not write tools, and no "
                                "message names {}; say in a system message too what the tools do "
                                "and how to call them",
                                name),
                    "tools", "unsupported_parameter"};
  }
  return {};
}

}  // namespace

std::string_view FinalContent(const ApiRequest& request) {
  return TrimmedAsInTemplates(ContentOf(request.messages.back()));
}

bool OffersTools(const ApiRequest& request) {
  return request.tool_choice != ToolChoice::kNone && !request.tools.empty();
}

Result<std::string, ApiError> RenderChat(const ServerContext& context, const ApiRequest& request) {
  if (context.chat == nullptr || context.tokenizer == nullptr) {
    return ApiError{400, "messages: this model has no chat template; use /v1/completions",
                    "messages"};
  }
  return RenderChat(*context.chat, request);
}

Result<std::string, ApiError> RenderChat(const ChatTemplate& chat, const ApiRequest& request) {
  const bool continues = request.continue_final_message.value_or(false);
  json::object values = request.template_values;
  json::array messages = request.messages;
  if (OffersTools(request)) values["tools"] = request.tools;
  RETURN_IF_ERROR(ArrangeCalls(chat, request, values, &messages));
  const std::string mark = continues ? SecureRandomHex(kMarkBytes) : "";
  if (continues) MarkLastMessage(mark, &messages.back());
  values["messages"] = std::move(messages);
  values["add_generation_prompt"] = request.add_generation_prompt.value_or(!continues);
  Result<std::string> text = RenderEitherWay(chat, &values);
  if (!text) return WhyNot(chat, request, values, text.error());
  RETURN_IF_ERROR(CheckSystemIsThere(request, *text));
  RETURN_IF_ERROR(CheckToolsAreThere(request, *text));
  if (!continues) return *std::move(text);
  return CutAfterLastMessage(*std::move(text), mark, request);
}

}  // namespace braid
