// Is a reply to a task right? The checks of models/eval/README.md, as models/recipe/evaluate.py
// does them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace braid {

struct EvalItem {
  std::string id;
  json::value messages;  // null for texts
  json::value tools;     // null: none
  bool thinking = true;
  std::string text;   // of perplexity items
  std::string check;  // exact, number, contains, tool_call, no_tool_call, perplexity, last_number,
                      // letter
  json::value answer;
  std::string prompt = {};  // plain text instead of messages; the reply ends at the next question
  int32_t options = 26;     // of `letter`: A and so many more

  bool measures_perplexity() const { return check == "perplexity"; }
};

// `place` names file and line in errors.
Result<EvalItem> ParseEvalItem(const json::object& object, const std::string& place);

struct EvalReply {
  std::string content;             // without reasoning, calls and surrounding blanks
  std::vector<json::value> calls;  // null for one that is no JSON
};

// Of generated text: what follows the last </think>, split at the tool calls.
EvalReply SplitReply(std::string_view text);

bool IsRight(const EvalItem& item, const EvalReply& reply);

// Equal as JSON: objects in any order, 1 equal to 1.0.
bool SameJson(const json::value& a, const json::value& b);

}  // namespace braid
