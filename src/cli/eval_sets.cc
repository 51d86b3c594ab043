// The prompts are those of the sets' own evaluation programs: "Question: ... Answer: ..." in plain
// text, and a turn for each question and answer in a chat.
#include "cli/eval_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace braid {
namespace {

constexpr std::string_view kStep = "Let's think step by step.";
constexpr int32_t kOptionsMax = 26;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWord(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

std::string_view TextAt(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

Result<SetQuestion> Gsm8k(const json::object& object, const std::string& place) {
  const std::string_view answer = TextAt(object, "answer");
  const size_t mark = answer.rfind("####");
  const std::optional<double> number =
      mark == std::string_view::npos ? std::nullopt : LastNumber(answer.substr(mark));
  if (!number) {
    return Error{ErrorCode::kInvalid,
                 place + ": the answer does not end with \"#### \" and a number"};
  }
  return SetQuestion{.set = "GSM8K",
                     .category = {},
                     .question = std::string(TextAt(object, "question")),
                     .worked = std::string(answer),
                     .answer = fmt::format("{}", *number)};
}

Result<SetQuestion> MmluPro(const json::object& object, const std::string& place) {
  const json::array* options = object.at("options").if_array();
  const std::string_view letter = TextAt(object, "answer");
  const auto count = options == nullptr ? 0 : static_cast<int32_t>(options->size());
  if (count < 2 || count > kOptionsMax || letter.size() != 1 || letter[0] < 'A' ||
      letter[0] >= 'A' + count) {
    return Error{ErrorCode::kInvalid,
                 place + ": \"options\" must be 2 to 26 texts, and \"answer\" the letter of one"};
  }
  SetQuestion out{.set = "MMLU-Pro",
                  .category = std::string(TextAt(object, "category")),
                  .question = std::string(TextAt(object, "question")),
                  .worked = fmt::format("{} The answer is ({}).", kStep, letter),
                  .answer = std::string(letter),
                  .options = count};
  out.question += "\nOptions:";
  for (int32_t i = 0; i < count; ++i) {
    const json::value& option = (*options)[static_cast<size_t>(i)];
    if (!option.is_string()) {
      return Error{ErrorCode::kInvalid, place + ": \"options\" must be texts"};
    }
    out.question +=
        fmt::format("\n{}. {}", static_cast<char>('A' + i), std::string_view(option.get_string()));
  }
  std::string_view steps = TextAt(object, "cot_content");
  if (steps.starts_with("A: ")) steps.remove_prefix(3);
  if (!steps.empty()) out.worked = steps;
  return out;
}

// What a chat asks for with each question.
std::string AskOf(const SetQuestion& question) {
  if (question.options == 0) {
    return question.question + "\n\nEnd the answer with \"#### \" and the number.";
  }
  return question.question +
         "\n\nThink step by step, and end with \"The answer is (X)\", where X is the letter.";
}

}  // namespace

Result<std::optional<SetQuestion>> ParseSetQuestion(const json::object& object,
                                                    const std::string& place) {
  if (TextAt(object, "question").empty() || object.contains("check")) {
    return std::optional<SetQuestion>();
  }
  ASSIGN_OR_RETURN(SetQuestion question,
                   object.contains("options") ? MmluPro(object, place) : Gsm8k(object, place));
  return std::optional<SetQuestion>(std::move(question));
}

EvalItem ItemOf(const SetQuestion& question, std::span<const SetQuestion> examples,
                const SetPrompting& prompting) {
  std::vector<const SetQuestion*> shown;
  for (const SetQuestion& example : examples) {
    if (std::ssize(shown) == prompting.shots) break;
    if (example.set == question.set && example.category == question.category) {
      shown.push_back(&example);
    }
  }
  EvalItem item{.thinking = prompting.thinking,
                .check = question.options > 0 ? "letter" : "last_number",
                .answer = json::value(question.answer),
                .options = question.options};
  if (prompting.raw) {
    for (const SetQuestion* example : shown) {
      item.prompt +=
          fmt::format("Question: {}\nAnswer: {}\n\n", example->question, example->worked);
    }
    item.prompt += fmt::format("Question: {}\nAnswer:", question.question);
    if (question.options > 0) item.prompt += fmt::format(" {}", kStep);
    return item;
  }
  json::array messages;
  const auto say = [&](const char* role, const std::string& content) {
    messages.push_back(json::object{{"role", role}, {"content", content}});
  };
  for (const SetQuestion* example : shown) {
    say("user", AskOf(*example));
    say("assistant", example->worked);
  }
  say("user", AskOf(question));
  item.messages = std::move(messages);
  return item;
}

std::string_view UpToNextQuestion(std::string_view text) {
  return text.substr(0, text.find("\nQuestion:"));
}

std::optional<double> LastNumber(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && !IsDigit(text[end - 1])) --end;
  if (end == 0) return {};
  size_t begin = end;
  bool point = false;
  while (begin > 0) {
    const char c = text[begin - 1];
    const bool digit_before = begin > 1 && IsDigit(text[begin - 2]);
    if (IsDigit(c) || (c == ',' && digit_before)) {
      --begin;
    } else if (c == '.' && digit_before && !point &&
               text.substr(begin, end - begin).find(',') == std::string_view::npos) {
      point = true;
      --begin;
    } else {
      break;
    }
  }
  std::string digits(text.substr(begin, end - begin));
  std::erase(digits, ',');
  // "$-5", "-$5" and "-5"; in "7-5" it is no sign.
  size_t sign = begin;
  if (sign > 0 && text[sign - 1] == '$') --sign;
  const bool negative = sign > 0 && text[sign - 1] == '-' && (sign == 1 || !IsWord(text[sign - 2]));
  double value = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || rest != digits.data() + digits.size()) return {};
  return negative ? -value : value;
}

std::optional<char> LastLetter(std::string_view text, int32_t options) {
  const auto letter_at = [&](size_t at) -> std::optional<char> {
    while (at < text.size() && (text[at] == ' ' || text[at] == '(' || text[at] == '*')) ++at;
    if (at >= text.size() || text[at] < 'A' || text[at] >= 'A' + options) return {};
    if (at + 1 < text.size() && IsWord(text[at + 1])) return {};
    return text[at];
  };
  for (const std::string_view lead : {"answer is", "nswer:"}) {
    for (size_t at = text.rfind(lead); at != std::string_view::npos;
         at = at == 0 ? std::string_view::npos : text.rfind(lead, at - 1)) {
      if (const auto letter = letter_at(at + lead.size())) return letter;
    }
  }
  for (size_t at = text.size(); at-- > 0;) {
    if (at > 0 && IsWord(text[at - 1])) continue;
    if (text[at] >= 'A' && text[at] < 'A' + options &&
        (at + 1 == text.size() || !IsWord(text[at + 1]))) {
      return text[at];
    }
  }
  return {};
}

}  // namespace braid
