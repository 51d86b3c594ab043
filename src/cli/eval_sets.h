// Lines of published task sets, as their files have them: GSM8K ("question", and an "answer" that
// ends with "#### N") and MMLU-Pro ("question", "options", "answer", a letter). They become items
// with a prompt: a chat, or plain text, with worked examples before the question. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/eval_checks.h"

namespace braid {

// How published sets are asked.
struct SetPrompting {
  int32_t shots = 0;     // worked examples before each question
  bool raw = false;      // plain text, not a chat
  bool thinking = true;  // the chat template's enable_thinking
};

struct SetQuestion {
  std::string set;       // GSM8K, MMLU-Pro
  std::string category;  // examples are of the same one
  std::string question;  // with its options
  std::string worked;    // an answer as an example shows it
  std::string answer;    // the number, or the letter
  int32_t options = 0;   // letters from A; 0: a number is asked for
};

// nullopt: no line of such a set. An error: a line of one that lacks something.
Result<std::optional<SetQuestion>> ParseSetQuestion(const json::object& object,
                                                    const std::string& place);

// `examples`: those of its set and category are used, the first `prompting.shots`.
EvalItem ItemOf(const SetQuestion& question, std::span<const SetQuestion> examples,
                const SetPrompting& prompting);

// Of an answer in plain text: up to the next question, which a model without chats goes on with.
std::string_view UpToNextQuestion(std::string_view text);

// The last number of a text: "1,234.50" is 1234.5.
std::optional<double> LastNumber(std::string_view text);
// The letter of the last "answer is (B)" or "Answer: B", else the last capital letter that stands
// alone, of `options` from A.
std::optional<char> LastLetter(std::string_view text, int32_t options);

}  // namespace braid
