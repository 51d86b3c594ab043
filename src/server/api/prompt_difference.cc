// The texts are compared byte by byte, the tokens one by one; each rule below looks at the two
// requests and at the place for one habit of clients that breaks prefixes.
#include "server/api/prompt_difference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/text/trim.h"
#include "text/answer/reasoning.h"

namespace braid {
namespace {

constexpr size_t kExcerptBytes = 60;

// Where a piece of a message stands in the rendered text.
struct Span {
  size_t begin = 0, end = 0;
  size_t message = 0;
  std::string_view field;
};

struct Comparison {
  const PromptSide& first;
  const PromptSide& second;
  size_t at = 0;  // the first byte that differs
};

using Advice = std::optional<std::string>;

bool IsCharacterStart(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

size_t CommonBytes(std::string_view a, std::string_view b) {
  size_t at = static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())),
                    b.begin())
          .first -
      a.begin());
  while (at > 0 && at < a.size() && !IsCharacterStart(a[at])) --at;
  return at;
}

// Whole characters of text[begin, end), bounded.
std::string Before(std::string_view text, size_t at) {
  size_t begin = at > kExcerptBytes ? at - kExcerptBytes : 0;
  while (begin < at && !IsCharacterStart(text[begin])) ++begin;
  return std::string(text.substr(begin, at - begin));
}

std::string After(std::string_view text, size_t at) {
  size_t end = std::min(text.size(), at + kExcerptBytes);
  while (end < text.size() && !IsCharacterStart(text[end])) ++end;
  return std::string(text.substr(at, end - at));
}

std::string RoleOf(const ApiRequest& request, size_t message) {
  return std::string(request.messages[message].as_object().at("role").as_string());
}

// Pieces that templates write as they are, in order; others are left out.
std::vector<Span> SpansOf(const PromptSide& side) {
  std::vector<Span> spans;
  size_t from = 0;
  for (size_t i = 0; i < side.request.messages.size(); ++i) {
    const json::object& message = side.request.messages[i].as_object();
    for (std::string_view field : {"reasoning_content", "content"}) {
      const json::value* value = message.if_contains(field);
      if (value == nullptr || !value->is_string()) continue;
      const std::string_view piece = Trimmed(value->get_string());
      const size_t found = piece.empty() ? std::string::npos : side.text.find(piece, from);
      if (found == std::string::npos) continue;
      spans.push_back({found, found + piece.size(), i, field});
      from = found + piece.size();
    }
  }
  return spans;
}

std::string WhereIn(const PromptSide& side, size_t at) {
  if (side.request.endpoint != kChat) return at < side.text.size() ? "prompt" : "the prompt's end";
  for (const Span& span : SpansOf(side)) {
    const std::string role = RoleOf(side.request, span.message);
    if (at < span.begin) {
      return fmt::format(
          "what the template writes before messages[{}] ({}){}", span.message, role,
          span.message == 0 && !side.request.tools.empty() ? ", tools included" : "");
    }
    if (at < span.end) return fmt::format("messages[{}].{} ({})", span.message, span.field, role);
  }
  return "what the template writes after the last message";
}

// The run of letters, digits and : . + - / _ around a place.
std::string_view WordAt(std::string_view text, size_t at) {
  const auto part_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view(":.+-/_").find(c) != std::string_view::npos;
  };
  size_t begin = at, end = at;
  while (begin > 0 && part_of_word(text[begin - 1])) --begin;
  while (end < text.size() && part_of_word(text[end])) ++end;
  return text.substr(begin, end - begin);
}

bool HasDigit(std::string_view word) {
  return std::any_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsIdentifier(std::string_view word) {
  constexpr size_t kBytesMin = 8;
  return word.size() >= kBytesMin && std::all_of(word.begin(), word.end(), [](char c) {
           return c == '-' || std::isxdigit(static_cast<unsigned char>(c)) != 0;
         });
}

// The first message that is not the same on both sides.
size_t FirstChanged(const Comparison& c) {
  const json::array& a = c.first.request.messages;
  const json::array& b = c.second.request.messages;
  size_t i = 0;
  while (i < std::min(a.size(), b.size()) && a[i] == b[i]) ++i;
  return i;
}

// Rules, most telling first.

Advice SaltDiffers(const Comparison& c) {
  if (c.first.request.cache_salt == c.second.request.cache_salt) return std::nullopt;
  return "cache_salt differs: requests of different salts share nothing, whatever their prompts; "
         "send the same salt for one conversation";
}

std::string NameOfTool(const json::value& tool) {
  return std::string(tool.as_object().at("function").as_object().at("name").as_string());
}

Advice ToolsDiffer(const Comparison& c) {
  const auto& [a, b] = std::pair(c.first.request.tools, c.second.request.tools);
  const auto names = [](const json::array& tools) {
    std::vector<std::string> out;
    for (const json::value& tool : tools) out.push_back(NameOfTool(tool));
    return out;
  };
  std::vector<std::string> in_a = names(a), in_b = names(b);
  // Equality of JSON objects ignores the order of keys; their text, which templates write, has it.
  if (json::serialize(a) == json::serialize(b)) return std::nullopt;
  if (a == b) {
    return "the tools are the same with their JSON keys in another order: serialise them the same "
           "way each time";
  }
  const bool same_order = in_a == in_b;
  std::sort(in_a.begin(), in_a.end());
  std::sort(in_b.begin(), in_b.end());
  if (in_a == in_b && !same_order) {
    return "the same tools come in another order: templates write them at the front, so keep one "
           "order";
  }
  return "the list of tools differs: templates write it at the front, so keep one list for a whole "
         "conversation and say in the last message which may be used";
}

Advice TemplateValuesDiffer(const Comparison& c) {
  const json::object& a = c.first.request.template_values;
  const json::object& b = c.second.request.template_values;
  if (a == b) return std::nullopt;
  std::string names;
  for (const json::object* side : {&a, &b}) {
    const json::object& other = side == &a ? b : a;
    for (const auto& [key, value] : *side) {
      const json::value* same = other.if_contains(key);
      if (same != nullptr && (*same == value || side == &b)) continue;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", std::string_view(key));
    }
  }
  return fmt::format(
      "chat_template_kwargs differ in {}: the template may write other text for "
      "every turn; keep them for a whole conversation",
      names);
}

// True if both prompts differ in their last messages only, as a new turn should.
bool InLastMessages(const Comparison& c) {
  const size_t changed = FirstChanged(c);
  return changed + 1 >= c.first.request.messages.size() &&
         changed + 1 >= c.second.request.messages.size();
}

Advice ClockOrCounter(const Comparison& c) {
  const std::string_view a = WordAt(c.first.text, c.at), b = WordAt(c.second.text, c.at);
  const bool last = c.first.request.endpoint == kChat && FirstChanged(c) > 0 && InLastMessages(c);
  if (a == b || last || !HasDigit(a) || !HasDigit(b)) return std::nullopt;
  return fmt::format(
      "{} (\"{}\", then \"{}\") changes between the requests and everything after it "
      "is recomputed: leave it out, or put it into the last message",
      IsIdentifier(a) && IsIdentifier(b) ? "an identifier" : "a time, date or counter", a, b);
}

Advice WhiteSpace(const Comparison& c) {
  constexpr size_t kSameMin = 16;
  const auto bare = [&](std::string_view text) {
    std::string out;
    for (const char ch : text.substr(c.at)) {
      if (std::isspace(static_cast<unsigned char>(ch)) == 0) out += ch;
    }
    return out;
  };
  const std::string a = bare(c.first.text), b = bare(c.second.text);
  const size_t same = CommonBytes(a, b);
  if (same < kSameMin && !(same == a.size() && same == b.size())) return std::nullopt;
  return "only white space differs here: keep spaces, line ends and trailing blanks as they were";
}

Advice Thinking(const Comparison& c) {
  const auto near = [&](std::string_view text) {
    return std::ranges::any_of(ReasoningFormats(), [&](const ReasoningFormat& format) {
      const std::string_view tag = format.tags.open;
      const size_t from = std::min(c.at >= tag.size() ? c.at - tag.size() + 1 : 0, text.size());
      return !tag.empty() && text.substr(from, 2 * tag.size()).find(tag) != std::string_view::npos;
    });
  };
  if (near(c.first.text) == near(c.second.text)) return std::nullopt;
  return "one prompt has thinking here and the other has not: the template leaves it out of "
         "earlier "
         "turns, or the client did not send reasoning_content back. What comes after is computed "
         "again; send reasoning_content back if the template keeps it, or turn thinking off for "
         "the conversation";
}

Advice HistoryChanged(const Comparison& c) {
  const json::array& a = c.first.request.messages;
  const json::array& b = c.second.request.messages;
  const size_t i = FirstChanged(c);
  if (i >= a.size() || i >= b.size() || InLastMessages(c)) return std::nullopt;
  for (size_t later = i + 1; later < a.size(); ++later) {
    if (a[later] != b[i]) continue;
    return fmt::format(
        "messages[{}] to messages[{}] of the first request are missing in the "
        "second: everything after the cut is recomputed; cut rarely and a "
        "good part at a time",
        i, later - 1);
  }
  return fmt::format(
      "messages[{}] ({}) is not what it was: everything from there on is computed "
      "again; leave earlier messages as they were",
      i, RoleOf(c.second.request, i));
}

Advice NewTurn(const Comparison& c) {
  if (c.first.request.endpoint != kChat || FirstChanged(c) == 0) return std::nullopt;
  return "the messages before are the same: nothing to change";
}

constexpr Advice (*kRules[])(const Comparison&) = {
    SaltDiffers, ToolsDiffer, TemplateValuesDiffer, ClockOrCounter,
    WhiteSpace,  Thinking,    HistoryChanged,       NewTurn};

std::vector<std::string> AdviceFor(const Comparison& c) {
  std::vector<std::string> out;
  for (const auto rule : kRules) {
    Advice advice = rule(c);
    // The last two say what is left when nothing else explains it.
    if (!advice || ((rule == HistoryChanged || rule == NewTurn) && !out.empty())) continue;
    out.push_back(*std::move(advice));
  }
  if (out.empty()) out.push_back("the prompts are different texts from here on");
  return out;
}

PromptPlace PlaceIn(const Tokenizer& tokenizer, const PromptSide& side, size_t token, size_t at) {
  PromptPlace place{
      .where = WhereIn(side, at), .before = Before(side.text, at), .after = After(side.text, at)};
  if (token < side.tokens.size()) {
    place.token = tokenizer.Decode(std::span(side.tokens).subspan(token, 1), false);
  }
  return place;
}

}  // namespace

PromptDifference ComparePrompts(const Tokenizer& tokenizer, const PromptSide& first,
                                const PromptSide& second) {
  const auto count = static_cast<ptrdiff_t>(std::min(first.tokens.size(), second.tokens.size()));
  const auto token = static_cast<size_t>(
      std::mismatch(first.tokens.begin(), first.tokens.begin() + count, second.tokens.begin())
          .first -
      first.tokens.begin());
  const Comparison c{first, second, CommonBytes(first.text, second.text)};
  PromptDifference difference{.common_tokens = static_cast<int32_t>(token),
                              .same = first.tokens == second.tokens,
                              .first = PlaceIn(tokenizer, first, token, c.at),
                              .second = PlaceIn(tokenizer, second, token, c.at)};
  if (difference.same) {
    difference.advice = {SaltDiffers(c).value_or("the prompts are the same: nothing to change")};
  } else if (token == first.tokens.size() && !SaltDiffers(c)) {
    difference.advice = {"the second prompt goes on where the first ends: nothing to change"};
  } else {
    difference.advice = AdviceFor(c);
  }
  return difference;
}

}  // namespace braid
