// The parts of an answer, in order: text, thinking and tool calls, in pieces. Streamed and whole
// answers of every API are built from the same events, so they cannot differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace braid {

struct AnswerEvent {
  enum class Kind : uint8_t {
    kText,           // text: a piece of the content
    kReasoning,      // text: a piece of the thinking
    kCallBegin,      // text: the tool's name; id: the model's own name of the call, often empty
    kCallArguments,  // text: a piece of the arguments, a JSON text when put together
    kCallEnd,        // the call is whole; a call without it was cut off
  };
  Kind kind = Kind::kText;
  std::string text;
  int32_t call = -1;  // of calls: counted from 0 in each answer
  std::string id;
  bool operator==(const AnswerEvent&) const = default;
};

using AnswerEvents = std::vector<AnswerEvent>;

// Appends an event; joins it to the last one where both are pieces of the same thing. Empty pieces
// are dropped.
void AddEvent(AnswerEvent event, AnswerEvents* events);

// All pieces of one kind put together.
std::string JoinedText(const AnswerEvents& events, AnswerEvent::Kind kind);

}  // namespace braid
