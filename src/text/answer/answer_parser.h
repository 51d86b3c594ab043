// From generated text to the events of an answer: thinking apart from content, tool calls found in
// both. One per answer, one thread. However the text is cut, the joined events are the same.
#pragma once

#include <optional>
#include <string_view>

#include "text/answer/answer_event.h"
#include "text/answer/reasoning.h"
#include "text/answer/tool_call.h"

namespace braid {

struct AnswerSyntax {
  bool split_reasoning = false;
  ReasoningTags reasoning_tags;
  const ToolFormat* tools = nullptr;  // null: calls are text
  ToolSchemas schemas;
  bool calls_in_reasoning = true;  // false: there they are thinking
};

class AnswerParser {
 public:
  // `syntax` must outlive the object.
  AnswerParser(const AnswerSyntax& syntax, bool starts_in_reasoning);

  AnswerEvents Push(std::string_view text);
  // The end; `cut` if the answer ended because of its length.
  AnswerEvents Flush(bool cut);

  bool inside_reasoning() const { return syntax_.split_reasoning && splitter_.inside_reasoning(); }

 private:
  void AddReasoning(std::string_view text, AnswerEvents* events);
  void AddContent(std::string_view text, AnswerEvents* events);

  const AnswerSyntax& syntax_;
  ReasoningSplitter splitter_;
  std::optional<ToolCallParser> in_reasoning_, in_content_;
  int32_t calls_ = 0;
};

}  // namespace braid
