// Parses items of task sets and checks answers against them.
#include "cli/eval_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "cli/eval_sets.h"

namespace braid {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f\v";

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// N of the last "The answer is N." of a text.
std::optional<int64_t> LastAnswer(std::string_view text) {
  constexpr std::string_view kLead = "The answer is ";
  std::optional<int64_t> found;
  for (size_t at = text.find(kLead); at != std::string_view::npos; at = text.find(kLead, at + 1)) {
    const std::string_view rest = text.substr(at + kLead.size());
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || end == rest.data() + rest.size() || *end != '.') continue;
    found = value;
  }
  return found;
}

std::vector<json::value> AsList(const json::value& value) {
  if (const json::array* array = value.if_array()) return {array->begin(), array->end()};
  return {value};
}

bool IsTextAnswer(const json::value& answer) {
  const auto text = [](const json::value& value) { return value.is_string(); };
  const std::vector<json::value> parts = AsList(answer);
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), text);
}

// Does the answer have the type that the check compares with?
bool AnswerFits(const EvalItem& item) {
  if (item.check == "perplexity") return true;
  if (item.check == "exact") return item.answer.is_string();
  if (item.check == "number") return item.answer.is_int64();
  if (item.check == "last_number") return item.answer.is_string() || item.answer.is_number();
  if (item.check == "letter")
    return item.answer.is_string() && item.answer.get_string().size() == 1;
  if (item.check == "contains" || item.check == "no_tool_call") return IsTextAnswer(item.answer);
  return item.check == "tool_call" && (item.answer.is_object() || item.answer.is_array());
}

}  // namespace

bool SameJson(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_double() || b.is_double() ? a.to_number<double>() == b.to_number<double>() : a == b;
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_array()) {
    const json::array &x = a.get_array(), &y = b.get_array();
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), SameJson);
  }
  if (!a.is_object()) return a == b;
  const json::object &x = a.get_object(), &y = b.get_object();
  return x.size() == y.size() && std::all_of(x.begin(), x.end(), [&](const auto& entry) {
           const json::value* other = y.if_contains(entry.key());
           return other != nullptr && SameJson(entry.value(), *other);
         });
}

Result<EvalItem> ParseEvalItem(const json::object& object, const std::string& place) {
  EvalItem item;
  const auto text = [&](const char* key, std::string& out) {
    const json::value* value = object.if_contains(key);
    if (value != nullptr && value->is_string()) out = value->get_string();
    return !out.empty();
  };
  text("id", item.id);
  if (!text("check", item.check)) {
    return Error{ErrorCode::kInvalid, place + ": no \"check\" (a string)"};
  }
  const json::value* answer = object.if_contains("answer");
  if (answer != nullptr) item.answer = *answer;
  if (!AnswerFits(item)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: check \"{}\" and answer {} do not go together", place, item.check,
                             JsonExcerpt(item.answer))};
  }
  if (item.measures_perplexity()) {
    if (text("text", item.text)) return item;
    return Error{ErrorCode::kInvalid, place + ": a perplexity item without \"text\""};
  }
  const json::value* messages = object.if_contains("messages");
  if (messages == nullptr || !messages->is_array()) {
    return Error{ErrorCode::kInvalid, place + ": no \"messages\" (an array)"};
  }
  item.messages = *messages;
  if (const json::value* tools = object.if_contains("tools")) item.tools = *tools;
  const json::value* thinking = object.if_contains("thinking");
  item.thinking = thinking == nullptr || !thinking->is_bool() || thinking->get_bool();
  return item;
}

EvalReply SplitReply(std::string_view text) {
  constexpr std::string_view kThought = "</think>", kOpen = "<tool_call>", kClose = "</tool_call>";
  const size_t thought = text.rfind(kThought);
  if (thought != std::string_view::npos) text.remove_prefix(thought + kThought.size());
  EvalReply reply;
  reply.content = Trim(text.substr(0, text.find(kOpen)));
  for (size_t at = text.find(kOpen); at != std::string_view::npos;) {
    const size_t begin = at + kOpen.size();
    const size_t end = text.find(kClose, begin);
    if (end == std::string_view::npos) break;
    auto call = ParseJson(Trim(text.substr(begin, end - begin)), "tool call");
    reply.calls.push_back(call ? *std::move(call) : json::value(nullptr));
    at = text.find(kOpen, end + kClose.size());
  }
  return reply;
}

bool IsRight(const EvalItem& item, const EvalReply& reply) {
  if (item.check == "tool_call") {
    const std::vector<json::value> wanted = AsList(item.answer);
    return std::equal(reply.calls.begin(), reply.calls.end(), wanted.begin(), wanted.end(),
                      SameJson);
  }
  if (!reply.calls.empty()) return false;
  if (item.check == "exact") return reply.content == std::string_view(item.answer.get_string());
  if (item.check == "number") return LastAnswer(reply.content) == item.answer.get_int64();
  if (item.check == "last_number") {
    const std::optional<double> wanted =
        item.answer.is_number() ? item.answer.to_number<double>()
                                : LastNumber(std::string_view(item.answer.get_string()));
    return wanted && LastNumber(reply.content) == wanted;
  }
  if (item.check == "letter") {
    return LastLetter(reply.content, item.options) == item.answer.get_string()[0];
  }
  for (const json::value& part : AsList(item.answer)) {
    if (reply.content.find(std::string_view(part.get_string())) == std::string::npos) return false;
  }
  return true;
}

}  // namespace braid
