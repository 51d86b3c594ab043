// An answer as a client puts it together from events: for the tests and the fuzzer of its parser.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/check.h"
#include "text/answer/answer_event.h"

namespace braid {

struct JoinedCall {
  std::string name, arguments, id;
  bool whole = false;
  bool operator==(const JoinedCall&) const = default;
};

struct JoinedAnswer {
  std::string text, reasoning;
  std::vector<JoinedCall> calls;
  bool operator==(const JoinedAnswer&) const = default;
};

inline void PrintTo(const JoinedAnswer& answer, std::ostream* out) {
  *out << "text \"" << answer.text << "\" reasoning \"" << answer.reasoning << "\"";
  for (const JoinedCall& call : answer.calls) {
    *out << " call " << call.name << " " << call.arguments << " id \"" << call.id << "\""
         << (call.whole ? "" : " (open)");
  }
}

// Pieces of a call come between its beginning and its end, one call after the other.
inline void Add(const AnswerEvents& events, JoinedAnswer* answer) {
  std::vector<JoinedCall>& calls = answer->calls;
  for (const AnswerEvent& event : events) {
    const auto call = static_cast<size_t>(event.call);
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        answer->text += event.text;
        break;
      case AnswerEvent::Kind::kReasoning:
        answer->reasoning += event.text;
        break;
      case AnswerEvent::Kind::kCallBegin:
        CHECK(call == calls.size(), "calls are counted from 0");
        calls.push_back({event.text, {}, event.id});
        break;
      case AnswerEvent::Kind::kCallArguments:
        CHECK(call + 1 == calls.size() && !calls[call].whole);
        calls[call].arguments += event.text;
        break;
      case AnswerEvent::Kind::kCallEnd:
        CHECK(call + 1 == calls.size() && !calls[call].whole);
        calls[call].whole = true;
        break;
    }
  }
}

}  // namespace braid
