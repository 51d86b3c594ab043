// Joining of pieces.
#include "text/answer/answer_event.h"

#include <utility>

namespace braid {

void AddEvent(AnswerEvent event, AnswerEvents* events) {
  using Kind = AnswerEvent::Kind;
  const bool piece = event.kind == Kind::kText || event.kind == Kind::kReasoning ||
                     event.kind == Kind::kCallArguments;
  if (piece && event.text.empty()) return;
  if (piece && !events->empty() && events->back().kind == event.kind &&
      events->back().call == event.call) {
    events->back().text += event.text;
  } else {
    events->push_back(std::move(event));
  }
}

std::string JoinedText(const AnswerEvents& events, AnswerEvent::Kind kind) {
  std::string text;
  for (const AnswerEvent& event : events) {
    if (event.kind == kind) text += event.text;
  }
  return text;
}

}  // namespace braid
