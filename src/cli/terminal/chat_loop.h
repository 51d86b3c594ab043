// The chat of `braid run` in a terminal or from a pipe.
#pragma once

#include <string>

#include "cli/terminal/signals.h"
#include "engine/engine.h"
#include "engine/generate.h"

namespace braid {

struct ChatOptions {
  std::string system;
  bool no_thinking = false;
};

// What the chat template gets for these messages.
json::object ChatContext(const ChatOptions& options, json::array messages);

// Writes an answer to standard output as it grows. On a terminal the reasoning is shown dimmed;
// elsewhere it is left out.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool terminal) : terminal_(terminal) {}
  void Print(const TextPiece& piece);
  void End();

 private:
  bool terminal_;
  bool dimmed_ = false;
};

// Runs until /exit or the end of standard input. SIGINT stops an answer, not the chat.
Status ChatLoop(Engine& engine, const ChatOptions& options, const SamplingChoice& sampling,
                SignalQueue& signals);

}  // namespace braid
