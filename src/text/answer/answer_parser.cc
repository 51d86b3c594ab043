// The splitter first, then a parser of calls on either side of it: a model may call from within its
// thinking and never close it.
#include "text/answer/answer_parser.h"

namespace braid {

AnswerParser::AnswerParser(const AnswerSyntax& syntax, bool starts_in_reasoning)
    : syntax_(syntax), splitter_(syntax.reasoning_tags, starts_in_reasoning) {
  if (syntax.tools == nullptr) return;
  if (syntax.split_reasoning && syntax.calls_in_reasoning) {
    in_reasoning_.emplace(*syntax.tools, syntax_.schemas,
                          ToolCallParser::Options{.outside = AnswerEvent::Kind::kReasoning,
                                                  .known_tools_only = true});
  }
  in_content_.emplace(*syntax.tools, syntax_.schemas, ToolCallParser::Options{});
}

void AnswerParser::AddReasoning(std::string_view text, AnswerEvents* events) {
  if (text.empty()) return;
  if (in_reasoning_) return in_reasoning_->Push(text, &calls_, events);
  AddEvent({AnswerEvent::Kind::kReasoning, std::string(text)}, events);
}

void AnswerParser::AddContent(std::string_view text, AnswerEvents* events) {
  if (text.empty()) return;
  if (!in_content_) return AddEvent({AnswerEvent::Kind::kText, std::string(text)}, events);
  if (in_reasoning_) in_reasoning_->Flush(false, &calls_, events);
  in_content_->Push(text, &calls_, events);
}

AnswerEvents AnswerParser::Push(std::string_view text) {
  AnswerEvents events;
  if (!syntax_.split_reasoning) {
    AddContent(text, &events);
    return events;
  }
  const ReasoningSplitter::Piece piece = splitter_.Push(text);
  AddReasoning(piece.reasoning, &events);
  AddContent(piece.content, &events);
  return events;
}

AnswerEvents AnswerParser::Flush(bool cut) {
  AnswerEvents events;
  if (syntax_.split_reasoning) {
    const ReasoningSplitter::Piece piece = splitter_.Flush();
    AddReasoning(piece.reasoning, &events);
    AddContent(piece.content, &events);
  }
  if (in_reasoning_) in_reasoning_->Flush(cut, &calls_, &events);
  if (in_content_) in_content_->Flush(cut, &calls_, &events);
  return events;
}

}  // namespace braid
